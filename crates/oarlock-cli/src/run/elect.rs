//! `elect`: the command runs while this one leads, and a value says where.

use std::time::Duration;

use oarlock::{Error, ErrorKind, Locks};
use tokio::time::sleep;

use super::acquire::{interruptible, narrate_once, uninterrupted};
use super::signals::{self, Signals};
use super::supervise::{Outcome, Stop, supervise};
use crate::args::ElectArgs;
use crate::exit::{Failure, told};
use crate::output::say;

/// Between two campaigns, of which the first failed.
const PAUSE: Duration = Duration::from_secs(1);

/// # Cancel safety
/// Never dropped: signals are handled inside.
pub(crate) async fn elect(args: &ElectArgs, locks: &Locks) -> Result<u8, Failure> {
    let mut signals = Signals::listen(signals::SUPERVISOR)?;
    let name = args.job.name.as_str();
    // Not the library's own loop, which would let another lead before the command has ended.
    let mut election = locks.election(name).wait(None);
    if let Some(lease) = args.job.lease {
        election = election.lease(lease);
    }
    let (mut is_said, mut is_cut) = (false, false);
    loop {
        let campaign = election.campaign(args.value.clone());
        let telling = narrate_once(name, locks, &mut is_said);
        let leadership = match interruptible(&mut signals, campaign, telling).await? {
            Ok(leadership) => leadership,
            Err(error) if is_of_no_use(&error) => return Err(Failure::config(&error)),
            Err(error) => {
                say(format!("{}; the campaign goes on", told(&error)));
                uninterrupted(&[name], locks, &mut signals, sleep(PAUSE)).await?;
                continue;
            }
        };
        tracing::info!(name, token = %leadership.fencing_token(), "leads");
        is_said = false;
        if let Some(cut) = args.job.cut(leadership.remaining()).filter(|_| !is_cut) {
            say(cut);
            is_cut = true;
        }
        let outcome = supervise(&args.job, &leadership.lease().into(), &mut signals, Stop::IsOurs).await;
        // Awaited also when the command could not be started, so that the next one leads.
        let resigned = leadership.resign().await;
        let outcome = outcome?;
        let was_lost = resigned.as_ref().is_err_and(|error| error.kind() == ErrorKind::Lost);
        match outcome {
            Outcome::Stopped(_) => {}
            Outcome::Ended { .. } | Outcome::NotBegun { .. } if !was_lost => {}
            Outcome::Ended { .. } | Outcome::NotBegun { .. } | Outcome::Killed { .. } | Outcome::Lost { .. } => {
                say(format!("{name:?}: leads no more, and campaigns again"));
                continue;
            }
        }
        return super::code(&format!("{name:?}"), &outcome, resigned);
    }
}

/// Is there no use in another campaign?
fn is_of_no_use(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Invalid | ErrorKind::Unsupported | ErrorKind::Closed)
}
