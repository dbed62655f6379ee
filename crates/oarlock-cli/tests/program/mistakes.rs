//! The manual's page on errors shows what the program prints.

use crate::common::Place;

const PAGE: &str = include_str!("../../../../docs/manual/errors.md");

/// Each block of text on the page is a command, behind a dollar sign, and what it prints. An ellipsis stands for
/// whatever depends on the machine.
#[test]
fn mistakes_are_answered_as_the_manual_shows() {
    let place = Place::new();
    let mut seen = 0;
    let (_, section) = PAGE.split_once("\n## Mistakes that need no server\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    for block in section.split("```text\n$ ").skip(1) {
        let (block, _) = block.split_once("```").unwrap();
        let (command, shown) = block.split_once('\n').unwrap();
        let arguments: Vec<_> = command.split(' ').map(|word| word.trim_matches('\'')).collect();
        assert_eq!(arguments[0], "oarlock", "{command}");
        let output = place.bare(&arguments[1..]).output().unwrap();
        assert!(!output.status.success(), "{command}");
        let printed = one_line(&String::from_utf8(output.stderr).unwrap());
        assert!(matches(&one_line(shown), &printed), "{command}\nprinted: {printed}\nshown: {shown}");
        seen += 1;
    }
    assert!(seen >= 10, "{seen}");
}

/// The page is wrapped, and so is what the parser of the command line says.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn matches(shown: &str, printed: &str) -> bool {
    let mut rest = printed;
    for (number, part) in shown.split('…').enumerate() {
        match rest.find(part) {
            Some(at) if number > 0 || at == 0 => rest = &rest[at + part.len()..],
            _ => return false,
        }
    }
    rest.is_empty() || shown.ends_with('…')
}
