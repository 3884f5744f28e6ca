//! Holds the manifests against the layers.
//!
//! Holds: a crate names another only by a listed arrow; an arrow goes to a lower layer, or
//! sideways where that is listed; what is listed is used. Test dependencies may name any crate
//! that is not above. xtask stands outside: it names no crate and none names it.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::finding::Finding;
use crate::tree::Tree;

const OUTSIDE: &str = "xtask";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Layers {
    /// From the ground up.
    layers: Vec<String>,
    #[serde(default)]
    never: Vec<Never>,
    #[serde(default)]
    crates: BTreeMap<String, Place>,
    /// Libraries, and the crates that alone may name them.
    #[serde(default)]
    only: BTreeMap<String, Vec<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Never {
    /// A layer.
    from: String,
    /// Crates.
    to: Vec<String>,
    why: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Place {
    layer: String,
    needs: Vec<String>,
    #[serde(default)]
    sideways: Vec<String>,
}

/// What a rule reads of a manifest.
#[derive(Debug)]
struct Manifest {
    file: String,
    name: String,
    /// Normal and build dependencies.
    needs: BTreeSet<String>,
    tests: BTreeSet<String>,
}

pub fn check(tree: &Tree, layers_file: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let layers: Layers = match toml::from_str(tree.text(layers_file).unwrap_or_default()) {
        Ok(layers) => layers,
        Err(error) => {
            let what = format!("cannot be read: {}", error.message());
            return vec![Finding::new(layers_file, 0, what, "see the head of the file")];
        }
    };
    let mut manifests = Vec::new();
    for file in tree.ending("Cargo.toml") {
        if file.path.starts_with("crates/") || file.path.starts_with("xtask/") {
            manifests.extend(read_manifest(&file.path, &file.text, &mut findings));
        }
    }
    findings.extend(check_list(&layers, layers_file, &manifests));
    for manifest in &manifests {
        findings.extend(check_manifest(&layers, manifest));
    }
    findings
}

fn read_manifest(path: &str, text: &str, findings: &mut Vec<Finding>) -> Option<Manifest> {
    let table: toml::Table = match toml::from_str(text) {
        Ok(table) => table,
        Err(error) => {
            let what = format!("cannot be read: {}", error.message());
            findings.push(Finding::new(path, 0, what, "see the manifests beside it"));
            return None;
        }
    };
    let inherits = |value: Option<&toml::Value>| {
        value.and_then(|v| v.get("workspace")).and_then(toml::Value::as_bool) == Some(true)
    };
    if !inherits(table.get("lints")) {
        let instead = "write `[lints]` and `workspace = true`";
        findings.push(Finding::new(path, 0, "the lints are not the workspace's", instead));
    }
    let mut names = |sections: &[&str]| -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for section in sections {
            let Some(listed) = table.get(*section).and_then(toml::Value::as_table) else {
                continue;
            };
            for (name, value) in listed {
                if !inherits(Some(value)) {
                    let what = format!("`{name}` has a version of its own");
                    let instead = "write `.workspace = true` and the version in the root's list";
                    findings.push(Finding::new(path, line_naming(text, name), what, instead));
                }
                names.insert(name.clone());
            }
        }
        names
    };
    let needs = names(&["dependencies", "build-dependencies"]);
    let tests = names(&["dev-dependencies"]);
    let folder = path.trim_end_matches("/Cargo.toml").rsplit('/').next()?;
    Some(Manifest { file: path.to_owned(), name: folder.to_owned(), needs, tests })
}

/// The line on which a manifest names a dependency.
fn line_naming(text: &str, name: &str) -> usize {
    text.lines()
        .position(|line| {
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '.', '=']))
        })
        .map_or(0, |index| index + 1)
}

/// The list itself: known layers, arrows that go down, nothing that is not there.
fn check_list(layers: &Layers, file: &str, manifests: &[Manifest]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut found = |what: String, instead: &str| {
        findings.push(Finding::new(file, 0, what, instead));
    };
    let height = |layer: &str| layers.layers.iter().position(|known| known == layer);
    for never in layers.never.iter().filter(|never| height(&never.from).is_none()) {
        found(format!("`{}` is no layer", never.from), "name one of `layers`");
    }
    for (name, place) in &layers.crates {
        let Some(from) = height(&place.layer) else {
            found(format!("`{}` is no layer", place.layer), "name one of `layers`");
            continue;
        };
        let Some(manifest) = manifests.iter().find(|m| m.name == *name) else {
            found(format!("the crate `{name}` is not there"), "take it out");
            continue;
        };
        for need in &place.needs {
            let Some(to) = layers.crates.get(need).and_then(|place| height(&place.layer)) else {
                found(format!("`{name}` needs `{need}`, which has no place"), "give it one");
                continue;
            };
            if !manifest.needs.contains(need) {
                found(format!("the arrow {name} -> {need} is not used"), "take it out");
            }
            if to > from || (to == from && !place.sideways.contains(need)) {
                let what = format!("the arrow {name} -> {need} does not go down");
                found(what, "turn it round, or move what is needed into a lower crate");
            }
        }
    }
    if let Some(name) = in_a_circle(layers) {
        found(format!("sideways arrows lead from `{name}` back to it"), "break the circle");
    }
    findings
}

/// A crate from which sideways arrows lead back to itself.
fn in_a_circle(layers: &Layers) -> Option<&str> {
    layers.crates.keys().map(String::as_str).find(|start| {
        let mut seen = BTreeSet::new();
        let mut next = vec![*start];
        while let Some(at) = next.pop() {
            for to in layers.crates.get(at).into_iter().flat_map(|place| &place.sideways) {
                if to == start {
                    return true;
                }
                if seen.insert(to.as_str()) {
                    next.push(to);
                }
            }
        }
        false
    })
}

fn check_manifest(layers: &Layers, manifest: &Manifest) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut found = |what: String, instead: &str| {
        findings.push(Finding::new(&manifest.file, 0, what, instead));
    };
    let name = manifest.name.as_str();
    for (library, users) in &layers.only {
        if manifest.needs.contains(library) && !users.iter().any(|user| user == name) {
            let what = format!("`{name}` names `{library}`, which belongs to {}", users.join(", "));
            found(what, "ask that crate, or pass what is needed as an argument");
        }
    }
    let ours =
        |need: &&String| layers.crates.contains_key(need.as_str()) || need.as_str() == OUTSIDE;
    let Some(place) = layers.crates.get(name) else {
        if name != OUTSIDE {
            found(format!("the crate `{name}` has no layer"), "give it a place in layers.toml");
        } else if let Some(need) = manifest.needs.iter().chain(&manifest.tests).find(ours) {
            found(format!("xtask names `{need}`"), "let xtask start it as a command");
        }
        return findings;
    };
    for need in manifest.needs.iter().filter(ours) {
        if !place.needs.contains(need) {
            let what = format!("the arrow {name} -> {need} is not in layers.toml");
            found(what, "do without it; a new arrow is a decision about the layers");
        }
        for never in &layers.never {
            if never.from == place.layer && never.to.contains(need) {
                found(format!("the arrow {name} -> {need} is forbidden"), &never.why);
            }
        }
    }
    let height = |crate_name: &str| {
        let layer = &layers.crates.get(crate_name)?.layer;
        layers.layers.iter().position(|known| known == layer)
    };
    for need in manifest.tests.iter().filter(ours) {
        if height(need) > height(name) || need == OUTSIDE {
            found(format!("the tests of `{name}` name `{need}`, which is above"), "test it there");
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::File;

    const LAYERS: &str = "layers = [\"words\", \"ports\", \"roles\"]\n\
        [[never]]\nfrom = \"roles\"\nto = [\"link\"]\nwhy = \"ask an Upstream\"\n\
        [only]\nquinn = [\"link\"]\n\
        [crates.model]\nlayer = \"words\"\nneeds = []\n\
        [crates.link]\nlayer = \"ports\"\nneeds = [\"model\"]\n\
        [crates.client]\nlayer = \"roles\"\nneeds = [\"model\"]\n";

    fn manifest(needs: &[&str], tests: &[&str]) -> String {
        let list = |names: &[&str]| -> String {
            names.iter().map(|name| format!("{name}.workspace = true\n")).collect()
        };
        format!(
            "[dependencies]\n{}[dev-dependencies]\n{}[lints]\nworkspace = true\n",
            list(needs),
            list(tests)
        )
    }

    /// What is found when `client` has this manifest and the rest is in order.
    fn found(layers: &str, client: &str) -> Vec<String> {
        let files = [
            ("layers.toml", layers.to_owned()),
            ("crates/model/Cargo.toml", manifest(&[], &[])),
            ("crates/link/Cargo.toml", manifest(&["model", "quinn"], &[])),
            ("crates/client/Cargo.toml", client.to_owned()),
        ];
        let tree = Tree {
            paths: Vec::new(),
            files: files
                .into_iter()
                .map(|(path, text)| File { path: path.to_owned(), text })
                .collect(),
        };
        check(&tree, "layers.toml").into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn listed_arrows_that_go_down_pass() {
        assert_eq!(found(LAYERS, &manifest(&["model", "tokio"], &["link"])), [""; 0]);
    }

    #[test]
    fn an_arrow_that_is_not_listed_and_a_forbidden_one_are_found() {
        let what = found(LAYERS, &manifest(&["model", "link"], &[]));
        assert_eq!(
            what,
            [
                "the arrow client -> link is not in layers.toml",
                "the arrow client -> link is forbidden"
            ]
        );
    }

    #[test]
    fn an_arrow_that_nobody_uses_is_found() {
        assert_eq!(found(LAYERS, &manifest(&[], &[])), ["the arrow client -> model is not used"]);
    }

    #[test]
    fn arrows_up_and_sideways_are_found_unless_sideways_is_listed() {
        let up = LAYERS
            .replace("[crates.client]\nlayer = \"roles\"", "[crates.client]\nlayer = \"words\"");
        let client = manifest(&["model"], &[]);
        assert_eq!(found(&up, &client), ["the arrow client -> model does not go down"]);
        let listed = format!("{up}sideways = [\"model\"]\n");
        assert_eq!(found(&listed, &client), [""; 0]);
    }

    #[test]
    fn sideways_arrows_in_a_circle_are_found() {
        let circle = format!("{LAYERS}sideways = [\"client\"]\n");
        let what = found(&circle, &manifest(&["model"], &[]));
        assert_eq!(what, ["sideways arrows lead from `client` back to it"]);
    }

    #[test]
    fn a_library_of_another_layer_a_version_and_missing_lints_are_found() {
        let what = found(LAYERS, &manifest(&["model", "quinn"], &[]));
        assert_eq!(what, ["`client` names `quinn`, which belongs to link"]);
        let what = found(LAYERS, "[dependencies]\nmodel.workspace = true\ntokio = \"1\"\n");
        assert_eq!(what, ["the lints are not the workspace's", "`tokio` has a version of its own"]);
    }

    #[test]
    fn tests_may_not_name_what_is_above_them() {
        let low =
            LAYERS.replace("[crates.link]\nlayer = \"ports\"", "[crates.link]\nlayer = \"roles\"");
        let low =
            low.replace("[crates.client]\nlayer = \"roles\"", "[crates.client]\nlayer = \"ports\"");
        let what = found(&low, &manifest(&["model"], &["link"]));
        assert_eq!(what, ["the tests of `client` name `link`, which is above"]);
    }
}
