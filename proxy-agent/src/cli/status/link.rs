//! The programs at the sockets and their links, as `sidestep status` shows them.

use std::path::PathBuf;

use serde::Serialize;

/// A program and its link.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Link {
    pub(super) program: &'static str,
    pub(super) role: &'static str,
    #[serde(flatten)]
    pub(super) status: LinkStatus,
}

/// Whether a program is attached.
#[derive(Debug, Serialize)]
#[serde(
    tag = "state",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub(super) enum LinkStatus {
    /// To a cgroup.
    Attached {
        link: u32,
        program_id: u32,
        cgroup: u64,
        path: Option<PathBuf>,
    },
    /// To a cgroup that is gone.
    Defunct { link: u32, program_id: u32 },
    /// No link is pinned.
    Missing,
}

impl Link {
    /// One row of text.
    pub(super) fn row(&self) -> Vec<String> {
        let (state, ids, cgroup) = match &self.status {
            LinkStatus::Missing => ("missing", None, String::new()),
            LinkStatus::Defunct { link, program_id } => {
                ("defunct", Some((link, program_id)), "gone".to_owned())
            }
            LinkStatus::Attached {
                link,
                program_id,
                cgroup,
                path,
            } => {
                let place = path
                    .as_ref()
                    .map_or(format!("inode {cgroup}"), |path| path.display().to_string());
                ("attached", Some((link, program_id)), place)
            }
        };
        let (link, id) = match ids {
            Some((link, id)) => (link.to_string(), id.to_string()),
            None => ("-".to_owned(), "-".to_owned()),
        };
        vec![self.program.to_owned(), state.to_owned(), link, id, cgroup]
    }
}
