//! Whatever is written into a name, a URL, the environment or a file is taken or refused, and no secret of it shows.

use proptest::prelude::*;

use crate::properties;

proptest! {
    #[test]
    fn a_name_is_kept_as_it_is_or_refused(text in "\\PC{0,40}|.{0,600}|[a-z@:#0-9]{0,40}") {
        properties::a_name_is_kept_as_it_is_or_refused(&text);
        properties::an_owner_found_in_a_store_is_not_shown_whole(&text);
    }

    #[test]
    fn any_text_is_read_or_refused(text in "x://([a-z0-9.:,\\[\\]%_-]|\\PC){0,40}|.{0,80}") {
        properties::a_url_is_read_or_refused(&text);
        properties::a_file_is_taken_or_refused(&text);
        properties::a_setting_is_taken_or_refused("require", &text);
    }

    /// With values that are nearly right.
    #[test]
    fn a_setting_is_taken_or_refused(
        setting in "url|lease|wait|max_hold|fair|hand_overs|hand_over_for|prefix|label|require|backend|[a-z_]{1,9}",
        value in "-?[0-9]{1,25}(ns|us|ms|s|m|h|d|y|years)?|-?[0-9.e]{1,9}|true|fencing,fair|\\PC{0,20}",
    ) {
        properties::a_setting_is_taken_or_refused(&setting, &value);
    }

    #[test]
    fn a_password_never_shows(user in "[a-z]{0,6}", within in "[:@/?%#a-z0-9]{0,6}|\\PC{0,6}", host in "[a-z0-9.:/\\[\\]]{0,12}") {
        properties::a_password_never_shows(&user, &within, &host);
    }
}
