//! Reading a whole tree: through a client as programs do, or straight from the origin.

use super::{Leaf, Tree};
use crate::fault::fault;
use crate::machine::SimClient;
use crate::operation::{Fault, Path, Shown};
use crate::perform::{list_all, read_all, shown};
use chunks::{Secret, cover, describe_bytes, unpack};
use client::complete;
use model::{ChunkName, Contents, FileId, Kind, Name, Node, Piece};
use protocol::{
    Attach, Attached, Downstream, Listing, Notice, PAYLOAD_BYTES_MAX, Range, Request, Response,
    Service, Session,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Entries that are asked for in one listing.
const PAGE_ENTRIES: u32 = 100;
/// Pieces of one file, more than any has here.
const PIECES_MAX: usize = 100_000;

/// Everything below `base`, as programs of the client find it.
pub async fn of_client(client: &SimClient, base: &Path) -> Result<Tree, Fault> {
    let mut tree = Tree::default();
    let mut top =
        complete(client, |client| client.attributes(FileId::ROOT)).await.map_err(fault)?;
    for name in &base.0 {
        let found =
            complete(client, |client| client.lookup(top.file, name)).await.map_err(fault)?;
        top = found.ok_or(Fault::NoEntry)?;
    }
    let mut open = vec![(Path(Vec::new()), top)];
    while let Some((path, found)) = open.pop() {
        let file = found.file;
        let contents = match found.node.kind {
            Kind::File => Some(Arc::new(read_all(client, file).await?)),
            _ => None,
        };
        if found.node.kind == Kind::Directory {
            for (name, found) in list_all(client, file, 3).await? {
                open.push((path.join(&Path(vec![name])), found));
            }
        }
        tree.0.insert(path, leaf(file, &found.node, contents));
    }
    Ok(tree)
}

fn leaf(file: FileId, node: &Node, contents: Option<Arc<Vec<u8>>>) -> Leaf {
    let mut plain = node.clone();
    // Only who opens a file needs the root, so it may be known at one place alone.
    plain.contents = Contents { size: node.contents.size, root: None, holes: None };
    let xattrs = node.xattrs.iter().flatten();
    Leaf {
        shown: Shown { mtime: Some(node.mtime), ..shown(file, node) },
        target: node.target.clone().map(Vec::from),
        xattrs: xattrs.map(|(name, value)| (name.to_vec(), value.to_vec())).collect(),
        contents,
        node: Some(plain),
    }
}

/// One that nothing needs to be told.
struct Deaf;

impl Downstream for Deaf {
    fn tell(&self, _: Notice) -> impl Future<Output = bool> + Send {
        std::future::ready(false)
    }
}

/// Everything that the origin has, asked for as by a device without a cache.
pub async fn of_origin<S: Service>(origin: &S, caller: protocol::Caller) -> Result<Tree, String> {
    let session = origin.admit(caller, Deaf).await.map_err(|away| away.to_string())?;
    let attach = Attach {
        replica: None,
        made: 0,
        seen: model::Seq::START,
        locks: None,
        life: None,
        heard: None,
    };
    let attached = match session.answer(Request::Attach(attach)).await {
        Response::Attached(attached) => attached,
        other => return Err(format!("attaching gave {other:?}")),
    };
    let reader = Reader { session, attached };
    let mut tree = Tree::default();
    let mut open = vec![(Path(Vec::new()), FileId::ROOT)];
    while let Some((path, directory)) = open.pop() {
        let (node, entries) = reader.list(directory).await?;
        tree.0.insert(path.clone(), leaf(directory, &node, None));
        for (name, file, node) in entries {
            let path = path.join(&Path(vec![name]));
            match node.kind {
                Kind::Directory => open.push((path, file)),
                Kind::File => {
                    let contents = Arc::new(reader.contents(file, &node).await?);
                    tree.0.insert(path, leaf(file, &node, Some(contents)));
                }
                _ => {
                    tree.0.insert(path, leaf(file, &node, None));
                }
            }
        }
    }
    Ok(tree)
}

struct Reader<S> {
    session: S,
    attached: Attached,
}

impl<S: Session> Reader<S> {
    async fn page(&self, directory: FileId, after: Option<Name>) -> Result<Listing, String> {
        let request =
            Request::List { directory, after, entries_max: PAGE_ENTRIES, deep: false, also: None };
        match self.session.answer(request).await {
            Response::Listing(listing) => Ok(listing),
            other => Err(format!("listing {directory} gave {other:?}")),
        }
    }

    async fn list(&self, directory: FileId) -> Result<(Node, Vec<(Name, FileId, Node)>), String> {
        let mut nodes: BTreeMap<FileId, Node> = BTreeMap::new();
        let mut entries: Vec<(Name, FileId)> = Vec::new();
        loop {
            let after = entries.last().map(|(name, _)| name.clone());
            let listing = self.page(directory, after).await?;
            nodes.extend(listing.nodes.into_iter().filter_map(|n| Some((n.file, n.node?))));
            let listed = listing.directories.into_iter().next();
            let listed = listed.ok_or(format!("{directory} is not in its own listing"))?;
            entries.extend(listed.entries);
            if listed.complete {
                break;
            }
        }
        let node = |file: &FileId| {
            nodes.get(file).cloned().ok_or(format!("{file} is listed without its node"))
        };
        let with_nodes = entries.into_iter().map(|(name, file)| Ok((name, file, node(&file)?)));
        Ok((node(&directory)?, with_nodes.collect::<Result<_, String>>()?))
    }

    /// The contents, put together from their recipe, each chunk checked against its name.
    async fn contents(&self, file: FileId, node: &Node) -> Result<Vec<u8>, String> {
        let all = Range { offset: 0, length: node.contents.size };
        let request = Request::Recipe {
            file,
            version: None,
            range: all,
            eager_bytes: PAYLOAD_BYTES_MAX as u64,
            base: None,
        };
        let fetched = match self.session.answer(request).await {
            Response::Recipe(fetched) => fetched,
            other => return Err(format!("the recipe of {file} is {other:?}")),
        };
        let size = fetched.contents.size;
        if size != node.contents.size || fetched.version != node.contents_stamp {
            return Err(format!("{file} changed while it was read: {fetched:?}"));
        }
        let secret = Secret::new(self.attached.secret);
        if let (Some(payload), true) = (&fetched.bytes, fetched.recipe.is_empty()) {
            let chunks = unpack(payload, PAYLOAD_BYTES_MAX).map_err(|error| error.to_string())?;
            let contents = chunks.concat();
            let described = describe_bytes(&secret, self.attached.cutter, &contents);
            if described.tree.contents != fetched.contents {
                return Err(format!("{file}: {} bytes came that are not its", contents.len()));
            }
            return Ok(contents);
        }
        let mut known: BTreeMap<ChunkName, Vec<u8>> = BTreeMap::new();
        known.extend(fetched.recipe.iter().map(|chunk| (secret.name(chunk), chunk.to_vec())));
        let pieces =
            cover(&secret, &fetched.contents, all, PIECES_MAX, |name| Ok(known.get(name).cloned()));
        let pieces = pieces.map_err(|error| format!("the recipe of {file}: {error}"))?.pieces;
        if let Some(payload) = &fetched.bytes {
            let chunks = unpack(payload, PAYLOAD_BYTES_MAX).map_err(|error| error.to_string())?;
            known.extend(chunks.into_iter().map(|chunk| (secret.name(&chunk), chunk)));
        }
        let mut contents = Vec::new();
        for placed in pieces {
            match placed.piece {
                Piece::Zeros { length } => contents.resize(contents.len() + length as usize, 0),
                Piece::Chunk { name, .. } => contents.extend_from_slice(
                    known.get(&name).ok_or(format!("chunk {name} of {file} was not sent"))?,
                ),
            }
        }
        if contents.len() as u64 != size {
            return Err(format!("{file} has {size} bytes, and {} came", contents.len()));
        }
        Ok(contents)
    }
}
