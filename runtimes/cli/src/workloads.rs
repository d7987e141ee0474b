//! The workloads that the command line names, itself or in a file.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use tenure::LeaseName;
use tokio::sync::oneshot;

use crate::exit;
use crate::failure::Failure;
use crate::say;

/// The largest file that is read, in bytes: some ten thousand long names.
const MOST_BYTES: u64 = 4 << 20;
/// The file name that means standard input.
const STDIN: &str = "-";

/// What some editors put before a text in UTF-8.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// Whether the workloads of this file can be read again.
pub(crate) fn is_file(from: &Path) -> bool {
    from != Path::new(STDIN)
}

/// The workloads of a file, sorted, each once.
///
/// # Errors
/// What is wrong with it: it can't be read, it is too long, a line is no name, or there are none.
pub(crate) fn read(from: &Path) -> Result<Vec<LeaseName>, Failure> {
    let (file, source): (_, Box<dyn Read>) = if is_file(from) {
        let file = File::open(from).map_err(|error| unreadable(from, &error))?;
        (from.display().to_string(), Box::new(file))
    } else {
        ("standard input".to_owned(), Box::new(io::stdin()))
    };
    let mut bytes = Vec::new();
    source.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(|error| unreadable(from, &error))?;
    let refused = |text: String| Failure::new(exit::USAGE, text);
    if bytes.len() as u64 > MOST_BYTES {
        return Err(refused(format!(
            "{file} has more than {MOST_BYTES} bytes, which is no list of workloads"
        )));
    }
    let text = String::from_utf8(bytes).map_err(|_| refused(format!("{file} is no text in UTF-8")))?;
    let parsed = parse(&text).map_err(|(line, why)| refused(format!("{file}, line {line}: {why}")))?;
    for (line, first, name) in &parsed.again {
        say::line(format_args!("{file}, line {line}: workload {name:?} stands in line {first} already"));
    }
    if parsed.names.is_empty() {
        return Err(refused(format!("{file} has no workloads")));
    }
    Ok(parsed.names)
}

/// The same, on a thread of its own: what is no plain file may be read for ever, and nothing is to wait for that.
pub(crate) async fn read_apart(from: &Path) -> Result<Vec<LeaseName>, Failure> {
    let (sender, answer) = oneshot::channel();
    let path = from.to_owned();
    let thread = std::thread::Builder::new().name("workloads".to_owned()).spawn(move || {
        let _nobody_waits = sender.send(read(&path));
    });
    thread.map_err(|error| unreadable(from, &error))?;
    answer.await.unwrap_or_else(|_| Err(Failure::new(exit::INTERNAL, "the thread that reads has ended")))
}

fn unreadable(from: &Path, error: &io::Error) -> Failure {
    Failure::new(exit::USAGE, format!("can't read the workloads from {}: {error}", from.display()))
}

/// The name of a workload, from a file or the command line: one that both can give, or a workload would have two leases.
///
/// # Errors
/// Why it is none.
pub(crate) fn name(text: &str) -> Result<LeaseName, String> {
    if text.contains(char::is_control) {
        return Err(format!("{text:?} has a control character, which no workload is likely to have"));
    }
    if text.trim() != text {
        return Err(format!("{text:?} has blanks at its ends, which no workload can have in a file"));
    }
    LeaseName::new(text).map_err(|error| error.to_string())
}

/// What stands in a file.
#[derive(Debug, Default, PartialEq, Eq)]
struct Parsed {
    names: Vec<LeaseName>,
    /// Names that stand there again: in which line, in which before, and what.
    again: Vec<(usize, usize, LeaseName)>,
}

fn parse(text: &str) -> Result<Parsed, (usize, String)> {
    let mut first: BTreeMap<LeaseName, usize> = BTreeMap::new();
    let mut again = Vec::new();
    // The mark that some editors begin a file with is nobody's name. Taken for a part of one, it would give the workload
    // another lease than it has where the file was written without it.
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let name = name(line).map_err(|why| (number, why))?;
        match first.get(&name) {
            Some(first) => again.push((number, *first, name)),
            None => drop(first.insert(name, number)),
        }
    }
    Ok(Parsed { names: first.into_keys().collect(), again })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<LeaseName> {
        names.iter().map(|name| LeaseName::new(name).unwrap()).collect()
    }

    #[test]
    fn each_line_is_a_workload_but_for_blank_ones_and_comments() {
        let text = "\n b \r\n# a comment\n\t\na#1\n  # another\na b";
        assert_eq!(parse(text).unwrap().names, names(&["a b", "a#1", "b"]));
        assert_eq!(parse("").unwrap(), Parsed::default());
    }

    #[test]
    fn the_mark_that_an_editor_begins_a_file_with_is_no_part_of_a_name() {
        assert_eq!(parse("\u{feff}payroll\r\nmail\r\n"), parse("payroll\nmail\n"));
        assert_eq!(parse("\u{feff}# a comment\na").unwrap().names, names(&["a"]));
    }

    #[test]
    fn the_command_line_gives_no_name_that_a_file_can_not_give() {
        for text in ["a", "a b", "a/b", "日本語"] {
            assert_eq!(name(text).as_ref(), Ok(&parse(text).unwrap().names[0]));
        }
        for text in ["", " ", " a", "a ", "\u{a0}a", "a\t", "a\nb", "a\u{1b}[2J", "\0"] {
            let why = name(text).unwrap_err();
            assert!(!why.contains(['\u{1b}', '\n']), "{why}");
        }
    }

    #[test]
    fn one_that_stands_there_twice_is_told_with_both_lines() {
        let parsed = parse("b\na\n\nb\n").unwrap();
        assert_eq!(parsed.names, names(&["a", "b"]));
        assert_eq!(parsed.again, [(4, 1, names(&["b"]).remove(0))]);
    }

    #[test]
    fn a_line_that_is_no_name_is_told_with_its_number() {
        let (line, why) = parse(&format!("a\n{}", "x".repeat(256))).unwrap_err();
        assert!(line == 2 && why.contains("255"), "{line}: {why}");
        let (line, why) = parse("a\u{1b}[2J").unwrap_err();
        assert!(line == 1 && !why.contains('\u{1b}'), "{why}");
    }
}
