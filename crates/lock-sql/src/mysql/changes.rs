//! How what was decided of a lock that several hold is written: see `modes.rs` for the rules.

use lock_core::{OwnerId, Result};

use super::decide::{Change, State, Waits};
use super::release::mark;
use super::{MySqlLock, changed, hex, inserted};
use crate::modes::text;
use crate::server::{Again, Answer};

impl MySqlLock {
    /// Writes what was decided. No, if the lock is not what it was any more.
    pub(super) async fn write(&self, key: &str, seen: &State, change: &Change) -> Result<bool> {
        let answer = self.ask_to_write(key, seen, change, None).await?;
        Ok(self.wrote(&answer, change).await)
    }

    pub(super) async fn ask_to_write(
        &self,
        key: &str,
        seen: &State,
        change: &Change,
        asks: Option<&OwnerId>,
    ) -> Result<Answer<sqlx::MySql>> {
        let (template, key) = (&self.statements, hex(key));
        let number = |number: i64| number.to_string();
        let owner = |owner: &Option<String>| owner.as_deref().map_or_else(|| "NULL".to_owned(), hex);
        let list = |owners: &mut dyn Iterator<Item = &str>| owners.map(hex).collect::<Vec<_>>().join(", ");
        let granted = list(&mut change.granted.iter().map(|(waits, _)| waits.owner.as_str()));
        let mut script = super::script(
            &template.decide,
            [
                ("{owner}", &owner(&change.owner)),
                ("{token}", &number(change.token)),
                ("{since}", &number(change.since_us)),
                ("{lease}", &number(change.lease_us)),
                ("{expires}", &number(change.expires_us)),
                ("{line}", &(if change.in_line > 0 { super::statements::ALWAYS.to_owned() } else { "0".to_owned() })),
                ("{rev}", &number(seen.rev)),
                ("{seen_owner}", &owner(&seen.owner)),
                ("{seen_token}", &number(seen.token)),
                ("{seen_expires}", &number(seen.expires_us)),
                ("{seen_line}", &number(seen.line_us)),
                ("{granted}", &(if granted.is_empty() { "x''".to_owned() } else { granted })),
                ("{count}", &change.granted.len().to_string()),
                ("{mark}", &hex(&asks.map(mark).unwrap_or_default())),
            ],
        );
        let mut statements = 3;
        let mut then = |text: String| {
            script.push_str(&text);
            statements += 1;
        };
        if !change.removed.is_empty() {
            let removed = list(&mut change.removed.iter().map(String::as_str));
            then(super::script(&template.part_all, [("{owners}", &removed)]));
        }
        for held in &change.added {
            then(super::script(
                &template.join,
                [
                    ("{owner}", &hex(&held.owner)),
                    ("{token}", &number(held.token)),
                    ("{slots}", &hex(&held.slots.to_string())),
                    ("{lease}", &number(held.lease_us)),
                    ("{since}", &number(held.since_us)),
                    ("{expires}", &number(held.expires_us)),
                ],
            ));
        }
        for (waits, token) in &change.granted {
            let is_asking = asks.is_some_and(|asks| asks.as_str() == waits.owner);
            let statement = if is_asking { &template.out_of_line } else { &template.granted_in_line };
            let values =
                [("{owner}", &hex(&waits.owner)), ("{token}", &number(*token)), ("{at}", &number(seen.now_us))];
            then(super::script(statement, values));
        }
        if let Some(waits) = &change.enters {
            then(self.entering(waits, &key));
        }
        then("; COMMIT".to_owned());
        let script = script.replace("{key}", &key);
        self.server.run_script(&template.decide, script, statements, Again::No).await
    }

    /// Was it written? Then those in line who were granted are told.
    pub(super) async fn wrote(&self, answer: &Answer<sqlx::MySql>, change: &Change) -> bool {
        if changed(answer, 1) == 0 {
            return false;
        }
        let mut bells: Vec<_> = change.granted.iter().map(|(waits, _)| (waits.client.as_str(), waits.rings)).collect();
        bells.sort_unstable();
        bells.dedup();
        for (client, bell) in bells.into_iter().filter(|(_, bell)| *bell != 0) {
            if let Ok(client) = client.parse() {
                // It fails if there is no bell, or it was rung just now.
                let _ = self.ring(client, bell).await;
            }
        }
        true
    }

    /// Enters the line of a lock that others have, and that is not what it was for as long as it has this owner. Answers its
    /// `rev` from then on, or nothing: it has another owner.
    pub(super) async fn enter_alone(
        &self,
        key: &str,
        seen: &State,
        who: &Waits,
        asks: &OwnerId,
    ) -> Result<Option<i64>> {
        let owner = seen.owner.as_deref().map_or_else(|| "NULL".to_owned(), hex);
        let (statements, key, mark) = (&self.statements, hex(key), hex(&mark(asks)));
        let values = [("{key}", &key), ("{seen_owner}", &owner), ("{owner}", &hex(&who.owner)), ("{mark}", &mark)];
        let script = super::script(&statements.enter_alone, values) + &self.entering(who, &key) + "; COMMIT";
        let on_its_way = self.unsettled.send(asks);
        let answer = self.server.run_script(&statements.enter_alone, script, 5, Again::Yes).await;
        let answer = on_its_way.answered(answer)?;
        Ok((changed(&answer, 1) > 0).then(|| inserted(&answer, 1) as i64))
    }

    /// The statement by which somebody enters the line, after one that says whether it is to be.
    fn entering(&self, who: &Waits, key: &String) -> String {
        let values = [
            ("{key}", key),
            ("{owner}", &hex(&who.owner)),
            ("{lease}", &who.lease_us.to_string()),
            ("{client}", &who.client),
            ("{mode}", &hex(&text(who.mode))),
        ];
        super::script(&self.statements.enter_beside, values)
    }
}
