use std::time::Duration;

use super::*;

type Answer<T> = Option<Result<T>>;

fn at(seconds: u64) -> Instant {
    Instant::from_origin(Duration::from_secs(seconds))
}

fn yes() -> Answer<Option<Grant>> {
    Some(Ok(Some(Grant::new(StoreToken::new(1).unwrap(), at(1)))))
}

fn no() -> Answer<Option<Grant>> {
    Some(Ok(None))
}

fn away<T>() -> Answer<T> {
    Some(Err(Error::new(ErrorKind::Unavailable, "away")))
}

#[test]
fn a_majority_of_all_stores_grants_and_not_of_those_that_answer() {
    assert_eq!([3, 5, 7].map(majority), [2, 3, 4]);
    for (answers, open, over) in [
        ([yes(), yes(), None], Attempt::Granted, Attempt::Granted),
        ([yes(), None, None], Attempt::Open, Attempt::Failed),
        ([yes(), no(), None], Attempt::Open, Attempt::Busy),
        ([no(), no(), None], Attempt::Busy, Attempt::Busy),
        ([no(), None, away()], Attempt::Open, Attempt::Failed),
        ([yes(), no(), away()], Attempt::Busy, Attempt::Busy),
        ([yes(), away(), away()], Attempt::Failed, Attempt::Failed),
        ([no(), away(), away()], Attempt::Failed, Attempt::Failed),
    ] {
        assert_eq!(attempt(&answers, false), open, "{answers:?}");
        assert_eq!(attempt(&answers, true), over, "{answers:?}");
    }
}

#[test]
fn a_hold_counts_as_long_as_a_majority_has_it() {
    assert_eq!(until(3, [at(9), at(5)]), Some(at(5)));
    assert_eq!(until(3, [at(7), at(9), at(5)]), Some(at(7)));
    assert_eq!(until(5, [at(1), at(2), at(3), at(4)]), Some(at(2)));
    assert_eq!(until(3, [at(9)]), None);
}

#[test]
fn a_release_is_told_by_a_majority_or_by_what_we_know() {
    let (released, gone) = (Some(Ok(Unlocked::Released)), Some(Ok(Unlocked::NotHeld)));
    let come_to = |answers: [&Answer<Unlocked>; 3], held| {
        let answers = answers.map(Clone::clone);
        (unlocked(&answers, held, false), unlocked(&answers, held, true))
    };
    let sure = |answer: Option<Result<Unlocked>>| answer.map(Result::unwrap);
    let (open, over) = come_to([&released, &released, &None], false);
    assert_eq!((sure(open), sure(over)), (Some(Unlocked::Released), Some(Unlocked::Released)));
    let (open, over) = come_to([&released, &gone, &None], true);
    assert_eq!((sure(open), sure(over)), (None, Some(Unlocked::Released)));
    let (_, over) = come_to([&released, &gone, &None], false);
    assert_eq!(sure(over), Some(Unlocked::NotHeld));
    let (open, _) = come_to([&gone, &gone, &None], true);
    assert_eq!(sure(open), Some(Unlocked::NotHeld));
    let (_, over) = come_to([&released, &away(), &None], true);
    assert_eq!(over.unwrap().unwrap_err().kind(), ErrorKind::Unknown);
}

#[test]
fn a_renewal_needs_a_majority_and_so_does_a_loss() {
    let (held, gone) = (|end| Some(Ok(Renewal::Held { valid_until: at(end) })), Some(Ok(Renewal::NotHeld)));
    let is = |answers: [Answer<Renewal>; 3]| renewed(&answers, true).unwrap().ok();
    assert_eq!(is([held(5), gone.clone(), held(3)]), Some(Renewal::Held { valid_until: at(3) }));
    assert_eq!(is([held(5), gone.clone(), gone.clone()]), Some(Renewal::NotHeld));
    assert_eq!(is([held(5), gone.clone(), away()]), None);
    assert_eq!(is([held(5), away(), None]), None);
    assert!(renewed(&[held(5), gone, None], false).is_none());
}

#[test]
fn the_stores_own_kind_of_error_is_told_if_they_agree() {
    let invalid = || Some(Err::<(), _>(Error::new(ErrorKind::Invalid, "no")));
    assert_eq!(refused("x", &[invalid(), invalid(), invalid()]).kind(), ErrorKind::Invalid);
    assert_eq!(refused("x", &[invalid(), away(), away()]).kind(), ErrorKind::Unavailable);
    let told = failed("x", &[Some(Ok(())), away(), None], ErrorKind::Unknown);
    assert!(told.to_string().contains("1 of 3 stores answered") && told.to_string().contains("away"), "{told}");
}
