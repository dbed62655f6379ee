//! `oarlock latch`.

use std::process::Output;

use crate::common::{Place, Running, code};

fn latch(place: &Place, args: &[&str]) -> (i32, String) {
    let Output { status, stdout, stderr } = place.output(&[&["latch", "import", "--of", "3"], args].concat());
    (code(status), String::from_utf8([stdout, stderr].concat()).unwrap())
}

#[test]
fn it_opens_when_all_have_arrived() {
    let place = Place::made();
    assert_eq!(latch(&place, &[]), (1, "0 of 3 have arrived\n".to_owned()));
    let waits = Running::start(&mut place.oarlock(&["latch", "import", "--of", "3", "--wait"]));
    assert_eq!(latch(&place, &["--arrive", "eu-1"]), (0, "1 of 3 have arrived\n".to_owned()));
    assert_eq!(latch(&place, &["--arrive", "eu-1"]), (0, "1 of 3 have arrived\n".to_owned()));
    assert_eq!(latch(&place, &["--arrive", "us-1", "--keep", "1h"]), (0, "2 of 3 have arrived\n".to_owned()));
    assert_eq!(latch(&place, &[]), (1, "2 of 3 have arrived: eu-1, us-1\n".to_owned()));
    let (code, told) = latch(&place, &["--wait", "100ms"]);
    assert!(code == 1 && told.contains("2 of 3 have arrived within 100ms: eu-1, us-1"), "{told}");
    assert_eq!(latch(&place, &["--arrive", "us-2", "--wait", "60s"]), (0, "3 of 3 have arrived\n".to_owned()));
    assert_eq!(waits.code(), 0);
    assert_eq!(latch(&place, &[]).0, 0);
    // A stranger, another number of parties, and the next round.
    let (code, told) = latch(&place, &["--arrive", "us-3"]);
    assert!(code == 64 && told.contains("us-1"), "{told}");
    assert_eq!(latch(&place, &["--generation", "1"]), (1, "0 of 3 have arrived\n".to_owned()));
    let list = place.output(&["list", "import@latch/"]);
    assert!(String::from_utf8_lossy(&list.stdout).contains("import@latch/0/3/us-2"), "{list:?}");
}
