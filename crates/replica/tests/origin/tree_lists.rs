//! Access lists of a volume in step with those of a directory.
#![allow(
    clippy::disallowed_methods,
    reason = "the other programs of the server are played by the test"
)]

use crate::tree::Yard;
use model::{ACL_ACCESS, ACL_DEFAULT, Acl, Change, FileId, Node};
use rustix::fs::XattrFlags;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// A list by which a user beside the owner may read and write, as far as the mask lets it.
fn shared(user: u32, mask: u16) -> Vec<u8> {
    const NOBODY: u32 = u32::MAX;
    let entries =
        [(1_u16, 6_u16, NOBODY), (2, 6, user), (4, 0, NOBODY), (16, mask, NOBODY), (32, 0, NOBODY)];
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    assert!(Acl::read(&bytes).is_some());
    bytes
}

fn set(path: &Path, name: &[u8], list: &[u8]) {
    rustix::fs::setxattr(path, name, list, XattrFlags::empty()).unwrap();
}

fn list_of(path: &Path, name: &[u8]) -> Option<Vec<u8>> {
    let mut list = vec![0; 4096];
    let length = rustix::fs::getxattr(path, name, &mut list[..]).ok()?;
    list.truncate(length);
    Some(list)
}

fn mode_of(path: &Path) -> u16 {
    u16::try_from(fs::metadata(path).unwrap().mode() & 0o7777).unwrap()
}

/// The list and the mode of a file of the volume, and those of the tree, which are the same.
async fn same(yard: &mut Yard, name: &str, key: &[u8]) -> (Option<Vec<u8>>, u16) {
    yard.agreed();
    let looks = yard.party.join("looks").await;
    let (_, file, _) = yard.find(name).unwrap();
    let Node { mode, xattrs, .. } = looks.node(file).await.unwrap();
    let list = xattrs.unwrap_or_default().into_iter().find(|(has, _)| has.as_slice() == key);
    let found = (list.map(|(_, list)| Vec::from(list)), mode);
    let there = (list_of(&yard.path(name), key), mode_of(&yard.path(name)));
    assert_eq!(found, there, "volume, and tree");
    found
}

#[tokio::test(start_paused = true)]
async fn access_lists_are_carried_over_both_ways() {
    let mut yard = Yard::new();
    yard.write("a", "one");
    yard.agreed();
    set(&yard.path("a"), ACL_ACCESS, &shared(7, 6));
    let (list, mode) = same(&mut yard, "a", ACL_ACCESS).await;
    assert_eq!((list, mode), (Some(shared(7, 6)), 0o660));

    let mut ada = yard.party.join("ada").await;
    let (_, file, _) = yard.find("a").unwrap();
    let (name, value) = (ACL_ACCESS.to_vec().into(), shared(8, 4).into());
    ada.replay(Change::SetXattr { file, name, value, expects: None }).await;
    let (list, mode) = same(&mut yard, "a", ACL_ACCESS).await;
    assert_eq!((list, mode), (Some(shared(8, 4)), 0o640));

    fs::set_permissions(yard.path("a"), fs::Permissions::from_mode(0o620)).unwrap();
    let (list, mode) = same(&mut yard, "a", ACL_ACCESS).await;
    assert_eq!((list, mode), (Some(shared(8, 2)), 0o620), "the mask follows the mode");

    let mut ada = yard.party.join("ada").await;
    ada.replay(Change::RemoveXattr { file, name: ACL_ACCESS.to_vec().into(), expects: None }).await;
    let (list, mode) = same(&mut yard, "a", ACL_ACCESS).await;
    assert_eq!((list, mode), (None, 0o620));
}

#[tokio::test(start_paused = true)]
async fn what_a_device_makes_has_its_list_in_the_tree_from_the_first() {
    let mut yard = Yard::new();
    let mut ada = yard.party.join("ada").await;
    let (file, _) = ada.write_new(FileId::ROOT, "a", "hers").await;
    let (name, value) = (ACL_ACCESS.to_vec().into(), shared(7, 6).into());
    ada.replay(Change::SetXattr { file, name, value, expects: None }).await;
    let (list, mode) = same(&mut yard, "a", ACL_ACCESS).await;
    assert_eq!((list, mode), (Some(shared(7, 6)), 0o660));
}

#[tokio::test(start_paused = true)]
async fn what_programs_make_in_a_directory_that_hands_a_list_down_has_it_and_what_they_move_has_not()
 {
    let mut yard = Yard::new();
    fs::create_dir(yard.path("d")).unwrap();
    set(&yard.path("d"), ACL_DEFAULT, &shared(7, 6));
    let (list, _) = same(&mut yard, "d", ACL_DEFAULT).await;
    assert_eq!(list, Some(shared(7, 6)));

    yard.write("d/made", "here");
    fs::create_dir(yard.path("d/below")).unwrap();
    let elsewhere = tempfile::tempdir_in(yard.folder.path().parent().unwrap()).unwrap();
    fs::write(elsewhere.path().join("moved"), "there").unwrap();
    fs::create_dir(elsewhere.path().join("folder")).unwrap();
    for name in ["moved", "folder"] {
        fs::set_permissions(elsewhere.path().join(name), fs::Permissions::from_mode(0o750))
            .unwrap();
        fs::rename(elsewhere.path().join(name), yard.path("d").join(name)).unwrap();
    }
    let (list, _) = same(&mut yard, "d/made", ACL_ACCESS).await;
    assert!(list.is_some());
    let (list, _) = same(&mut yard, "d/below", ACL_DEFAULT).await;
    assert_eq!(list, Some(shared(7, 6)));
    for name in ["d/moved", "d/folder"] {
        assert_eq!(same(&mut yard, name, ACL_ACCESS).await, (None, 0o750), "{name}");
        assert_eq!(same(&mut yard, name, ACL_DEFAULT).await, (None, 0o750), "{name}");
    }
}
