//! `transom run --env`: the variables, as others read them.

use std::ffi::OsString;
use std::fmt::Write;

use clap::ValueEnum;

/// A reader of variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Form {
    /// Lines that a shell of POSIX evaluates
    Shell,
    /// Instructions of a Dockerfile
    Docker,
    /// Lines for the section [Service] of a unit of systemd
    Systemd,
}

impl Form {
    /// A line for each variable.
    pub(super) fn text(self, variables: &[(&'static str, OsString)]) -> String {
        let mut text = String::new();
        for (name, value) in variables {
            let value = value.to_string_lossy();
            // Writing to a string cannot fail.
            let _ = match self {
                Form::Shell => writeln!(text, "export {name}='{}'", value.replace('\'', r"'\''")),
                Form::Docker => {
                    writeln!(text, "ENV {name}=\"{}\"", escaped(&value, r#"\"$"#, '\\'))
                }
                Form::Systemd => {
                    let value = escaped(&value, r#"\""#, '\\').replace('%', "%%");
                    writeln!(text, "Environment=\"{name}={value}\"")
                }
            };
        }
        text
    }
}

/// A text with `mark` before each of some characters.
fn escaped(text: &str, special: &str, mark: char) -> String {
    let escape = |c: char| special.contains(c).then_some(mark).into_iter().chain([c]);
    text.chars().flat_map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts that `docker build` and `systemd-analyze` were seen to read back unchanged.
    #[test]
    fn quotes_and_signs_of_each_reader_are_escaped() {
        let variables = [("NAME", OsString::from(r#"a'b "c" \d $e 100%"#))];
        for (form, line) in [
            (Form::Shell, r#"export NAME='a'\''b "c" \d $e 100%'"#),
            (Form::Docker, r#"ENV NAME="a'b \"c\" \\d \$e 100%""#),
            (Form::Systemd, r#"Environment="NAME=a'b \"c\" \\d $e 100%%""#),
        ] {
            assert_eq!(form.text(&variables), format!("{line}\n"), "{form:?}");
        }
    }
}
