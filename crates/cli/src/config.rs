//! The configuration file: defaults for `farfs mount`, for all mounts and for single ones.
//! Holds: an unknown key is an error that names its line.
//!
//! ```toml
//! [mount]                               # every mount
//! cache-size = "20G"
//!
//! [mounts."/home/ann/work"]             # one, by mount point or by URL without what follows ?
//! url = "farfs://files.example.org:7440/main?key=…"
//! mode = "partial"
//!
//! [mergers]                             # programs for `farfs conflicts merge`, by names of files
//! "*.po" = "msgcat {mine} {theirs} -o {merged}"
//! ```

use crate::conflicts::Mergers;
use crate::exit::{Exit, fail};
use crate::wishes::Wishes;
use anyhow::{Context, Result};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    mount: Wishes,
    mounts: BTreeMap<String, Wishes>,
    mergers: Mergers,
}

/// The files that are read, the first wins. `FARFS_CONFIG` names one that stands for all.
fn paths() -> Vec<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(path) = set("FARFS_CONFIG") {
        return vec![path];
    }
    let users = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")));
    let users = users.map(|directory| directory.join("farfs/config.toml"));
    users.into_iter().chain(["/etc/farfs/config.toml".into()]).collect()
}

pub fn read() -> Result<Vec<Config>> {
    let mut configs = Vec::new();
    for path in paths() {
        if let Some(text) = text_of(&path)? {
            configs.push(parse(&text, &path)?);
        }
    }
    Ok(configs)
}

/// What a file says that people write. None: there is none.
pub fn text_of(path: &Path) -> Result<Option<String>> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(error).with_context(|| format!("cannot read {}", path.display()));
        }
    };
    String::from_utf8(bytes).map(Some).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        let at = before.len();
        let path = path.display();
        fail(Exit::Usage, format!("{path}: line {line} is no text (not UTF-8 at byte {at})"))
    })
}

fn parse(text: &str, path: &Path) -> Result<Config> {
    let wrong = |error: &dyn std::fmt::Display| {
        fail(Exit::Usage, format!("{}: {}", path.display(), error.to_string().trim_end()))
    };
    let mut config: Config = toml::from_str(text).map_err(|error| wrong(&error))?;
    config.mounts = by_place(config.mounts).map_err(|error| wrong(&error))?;
    if config.mount.url.is_some() || config.mount.state.is_some() {
        return Err(wrong(&"url and state belong in a [mounts.\"/MOUNT/POINT\"] section"));
    }
    match config.mergers.fault() {
        Some(fault) => Err(wrong(&fault)),
        None => Ok(config),
    }
}

/// By mount points as they are looked for, and URLs. Error: a section that no mount would ever go by.
fn by_place(sections: BTreeMap<String, Wishes>) -> Result<BTreeMap<String, Wishes>, String> {
    let mut by_place = BTreeMap::new();
    for (name, wishes) in sections {
        let place = match name.as_str() {
            path if path.starts_with('/') => plain(path),
            url if url.starts_with("farfs://") => url.to_owned(),
            _ => {
                return Err(format!(
                    "[mounts.\"{name}\"] is neither the whole path of a mount point, from / on, nor a \
                     farfs:// URL"
                ));
            }
        };
        if by_place.insert(place, wishes).is_some() {
            return Err(format!(
                "[mounts.\"{name}\"] is there twice, the other with or without a slash"
            ));
        }
    }
    Ok(by_place)
}

/// A path without what changes nothing of it: slashes at the end, or two in a row.
fn plain(path: &str) -> String {
    let names: Vec<&str> = path.split('/').filter(|name| !matches!(*name, "" | ".")).collect();
    format!("/{}", names.join("/"))
}

/// What merges; of two files' patterns that are the same, the first file's.
pub fn mergers(configs: &[Config]) -> Mergers {
    configs
        .iter()
        .rev()
        .map(|config| config.mergers.clone())
        .fold(Mergers::default(), Mergers::over)
}

/// What the section of a mount point says is mounted there.
pub fn url_of(configs: &[Config], mountpoint: &Path) -> Option<String> {
    let name = mountpoint.to_str()?;
    configs.iter().find_map(|config| config.mounts.get(name)?.url.clone())
}

/// What the files say of a mount; closer sections and earlier files win.
pub fn wishes(configs: &[Config], mountpoint: &Path, url: &str) -> Wishes {
    let place = url.split('?').next().unwrap_or(url);
    let names = mountpoint.to_str().into_iter().chain([place]);
    let sections = names.flat_map(|name| configs.iter().filter_map(|c| c.mounts.get(name)));
    let for_all = configs.iter().map(|config| &config.mount);
    sections.chain(for_all).cloned().fold(Wishes::default(), Wishes::or)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Size;
    use crate::wishes::ModeName;

    fn read(text: &str) -> Result<Config> {
        parse(text, Path::new("config.toml"))
    }

    #[test]
    fn the_closer_section_wins_and_the_nearer_file() {
        let users = read("[mounts.'/mnt']\nmode = 'partial'\nurl = 'farfs://h/v?key=k'").unwrap();
        let machines = read(
            "[mount]\nmode = 'connected'\ncache-size = '1G'\n\
             [mounts.'farfs://h/v']\ncache-size = '2G'",
        )
        .unwrap();
        let configs = [users, machines];
        assert_eq!(url_of(&configs, Path::new("/mnt")).as_deref(), Some("farfs://h/v?key=k"));
        let found = wishes(&configs, Path::new("/mnt"), "farfs://h/v?key=k");
        assert_eq!(found.mode, Some(ModeName::Partial));
        assert_eq!(found.cache_size, Some(Size(2 << 30)));
        let other = wishes(&configs, Path::new("/else"), "farfs://h/w");
        assert_eq!(other.cache_size, Some(Size(1 << 30)));
    }

    #[test]
    fn a_section_is_of_the_mount_point_that_it_names_or_an_error() {
        let config = read("[mounts.'/work/']\nmode = 'partial'\n[mounts.'//a/./b']\nmode = 'auto'");
        let configs = [config.unwrap()];
        let mode = |at: &str| wishes(&configs, Path::new(at), "farfs://h/v").mode;
        assert_eq!(mode("/work"), Some(ModeName::Partial));
        assert_eq!(mode("/a/b"), Some(ModeName::Auto));
        for name in ["work", "~/work", "./work", ""] {
            let said = read(&format!("[mounts.'{name}']\nmode = 'auto'")).unwrap_err();
            assert_eq!(crate::exit::code(&said), Exit::Usage);
            let said = said.to_string();
            assert!(
                said.contains(&format!("[mounts.\"{name}\"]")) && said.contains("whole path"),
                "{said}"
            );
        }
        assert!(read("[mounts.'/work/']\n[mounts.'/work']").is_err());
    }

    #[test]
    fn what_is_no_text_is_named_with_its_file_and_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.toml");
        assert_eq!(text_of(&path).unwrap(), None);
        std::fs::write(&path, b"[mount]\nmode = '\xff'\n").unwrap();
        let error = text_of(&path).unwrap_err();
        assert_eq!(crate::exit::code(&error), Exit::Usage);
        let said = format!("{}: line 2 is no text (not UTF-8 at byte 16)", path.display());
        assert_eq!(error.to_string(), said);
    }

    #[test]
    fn an_unknown_key_is_named_with_its_line() {
        for section in ["[mount]", "[mounts.'/mnt']"] {
            let error = read(&format!("{section}\nmode = 'auto'\ncolour = 'red'\n")).unwrap_err();
            assert_eq!(crate::exit::code(&error), Exit::Usage);
            let message = error.to_string();
            for part in ["config.toml", "line 3", "colour"] {
                assert!(message.contains(part), "{message}");
            }
        }
        assert!(read("[mount]\nmode = 'sometimes'").is_err());
        assert!(read("[mount]\nurl = 'farfs://h/v'").is_err());
    }
}
