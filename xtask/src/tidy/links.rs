//! Relative links of the documents point at files of the tree.

use crate::finding::Finding;

pub fn check(file: &str, text: &str, exists: impl Fn(&str) -> bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut fenced = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            continue;
        }
        if fenced {
            continue;
        }
        for target in targets(line) {
            let path = target.split('#').next().unwrap_or_default();
            if path.is_empty() || path.contains(':') {
                continue;
            }
            match resolve(file, path) {
                Some(path) if exists(&path) => {}
                _ => findings.push(Finding::new(
                    file,
                    index + 1,
                    format!("the link to `{target}` leads nowhere"),
                    "link to a file of the tree, counted from this file's folder",
                )),
            }
        }
    }
    findings
}

/// The targets of `[text](target)` in a line, what stands in backquotes left out.
fn targets(line: &str) -> Vec<String> {
    let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("``");
    let mut found = Vec::new();
    let mut rest = prose.as_str();
    while let Some(at) = rest.find("](") {
        rest = &rest[at + 2..];
        let Some(end) = rest.find(')') else { break };
        let target = rest[..end].split_whitespace().next().unwrap_or_default();
        found.push(target.to_owned());
        rest = &rest[end..];
    }
    found
}

/// The path from the root that `target` names when it stands in `file`; none if it leaves the tree.
fn resolve(file: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = file.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(file: &str, text: &str) -> usize {
        check(file, text, |path| ["docs/GLOSSARY.md", "STYLE.md", "docs"].contains(&path)).len()
    }

    #[test]
    fn links_are_counted_from_the_folder_of_their_file() {
        assert_eq!(broken("README.md", "[a](docs/GLOSSARY.md) [b](STYLE.md#names) [c](docs/)"), 0);
        assert_eq!(broken("docs/papers.md", "[a](GLOSSARY.md) [b](../STYLE.md)"), 0);
        assert_eq!(broken("docs/papers.md", "[a](STYLE.md)"), 1);
        assert_eq!(broken("README.md", "[a](../STYLE.md)"), 1);
    }

    #[test]
    fn addresses_anchors_and_code_are_no_links() {
        assert_eq!(broken("README.md", "[a](https://x.org/y) [b](#here) `[c](gone.md)`"), 0);
        assert_eq!(broken("README.md", "```\n[a](gone.md)\n```\n[b](gone.md)\n"), 1);
    }
}
