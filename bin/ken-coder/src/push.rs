//! `ken-coder push`: publishes one branch at the one address that was shown.

use ken_tool::Error;
use ken_types::ops::tools::Risk;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::call::Operation;
use crate::confine::{Access, run_confined, with_tree};
use crate::gate;
use crate::git::{Printed, check_name};
use crate::journal::Journal;
use crate::network::{Network, Remote, describe, git_variables, remote_of};
use crate::policy;
use crate::preview::{Preview, add};
use crate::rel_path::RelPath;
use crate::repository::{GitCall, Repository};
use crate::sandbox;
use crate::settings::Settings;

/// The maximum number of commits that are shown.
const COMMITS: &str = "50";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Push {
    repo: RelPath,
    remote: Option<String>,
    branch: Option<String>,
}

/// What is published, and where.
struct Target<'a> {
    repository: Repository<'a>,
    url: String,
    to: Destination<'a>,
    /// The name of the branch, such as `main`.
    branch: String,
    commit: String,
}

enum Destination<'a> {
    Server(Network<'a>),
    /// A repository of the workspace.
    Folder(Box<Repository<'a>>),
}

impl Push {
    fn target<'a>(&self, settings: &'a Settings) -> Result<Target<'a>, Error> {
        let name = self.remote_name();
        check_name("/remote", name)?;
        self.branch.iter().try_for_each(|branch| check_name("/branch", branch))?;
        let repository = Repository::open(settings, &self.repo)?;
        let url = self.url(&repository)?;
        let to = match remote_of(settings, &self.repo, &repository.work, "/remote", &url)? {
            Remote::Server(network) => Destination::Server(network),
            Remote::Folder(folder) => Destination::Folder(Box::new(there(settings, &folder)?)),
        };
        let current = repository.branch().and_then(|branch| branch.strip_prefix("refs/heads/"));
        let branch = self.branch.as_deref().or(current).ok_or_else(|| {
            Error::conflict(format!("no branch is checked out in {}", self.repo)).at("/branch").hint("name the branch")
        })?;
        let branch = branch.to_owned();
        let commit = repository
            .commit(&format!("refs/heads/{branch}"))?
            .ok_or_else(|| Error::not_found(format!("{} has no branch {branch}", self.repo)).at("/branch"))?;
        Ok(Target { repository, url, to, branch, commit })
    }

    fn remote_name(&self) -> &str {
        self.remote.as_deref().unwrap_or("origin")
    }

    /// Returns the only address of the remote. What else its configuration asks for, such as to push tags too, does not
    /// happen.
    fn url(&self, repository: &Repository<'_>) -> Result<String, Error> {
        let name = self.remote_name();
        let values = |key: &str| repository.values(&format!("remote.{name}.{key}"));
        let urls = Some(values("pushurl")).filter(|urls| !urls.is_empty()).unwrap_or_else(|| values("url"));
        match urls.as_slice() {
            [] => Err(Error::not_found(format!("{} has no remote {name}", self.repo)).at("/remote")),
            [url] => Ok((*url).to_owned()),
            urls => {
                let message = format!("the remote {name} has {} addresses, and one push is one address", urls.len());
                Err(Error::forbidden(message).at("/remote").hint("name another remote, or push by hand"))
            }
        }
    }

    fn preview_of(&self, settings: &Settings, target: &Target<'_>) -> Result<Preview, Error> {
        let Target { repository, url, to, branch, commit } = target;
        let (network, there) = match to {
            Destination::Server(network) => (Some(network), None),
            Destination::Folder(there) => (None, Some(&**there)),
        };
        let (here, known) = (format!("refs/heads/{branch}"), format!("--remotes={}", self.remote_name()));
        let words =
            ["log", "--no-color", "--no-show-signature", "--format=%h %s", "-n", COMMITS, &here, "--not", &known];
        let commits = repository.read(&GitCall::new(&words))?.text;
        let of_remote = there.iter().flat_map(|there| there.git_folders().into_iter().chain([&there.work]));
        let folders = repository.git_folders().into_iter().chain([&self.repo]).chain(of_remote);
        let verdict = policy::of_git(&settings.rules, folders, "git publishes a branch");
        let mut action = json!({"git": "push", "repo": self.repo, "remote": url, "branch": branch, "commit": commit,
            "commits": commits.lines().collect::<Vec<_>>(), "network": describe(network)});
        add(&mut action, "repository", repository.elsewhere());
        add(&mut action, "remoteRepository", there.and_then(Repository::elsewhere));
        let to = there.map(|there| there.shown(url)).unwrap_or_else(|| url.clone());
        let summary = format!("Push {branch} of {} to {to}", repository.shown(&self.repo));
        let about = (summary, &self.repo, Risk::High);
        let write = there.map_or(&repository.common, |there| &there.work);
        let profile = sandbox::profile(settings, std::slice::from_ref(write), network);
        Ok(Preview::new(settings, verdict, "git.push", about, action, None, (&profile, &Value::Null)))
    }
}

/// Opens the repository at the folder of a remote.
fn there<'a>(settings: &'a Settings, folder: &RelPath) -> Result<Repository<'a>, Error> {
    let there =
        Repository::open(settings, folder).map_err(|error| Error { at: Some("/remote".to_owned()), ..error })?;
    if there.work == *folder {
        Ok(there)
    } else {
        Err(Error::not_found(format!("{folder} is not a git repository")).at("/remote"))
    }
}

impl Operation for Push {
    const NAME: &'static str = "ken-coder push";
    const ABOUT: &'static str = "Push a branch of a git repository";
    const FIELDS: &'static str = "Fields: repo, remote (default origin), branch (default: the current one). A remote is a folder of the \
        workspace, or an http or https URL of a host that the rule of the repository names.";
    const ASKS: bool = true;
    type Answer = Printed;

    fn preview(&self, settings: &Settings) -> Result<Preview, Error> {
        self.preview_of(settings, &self.target(settings)?)
    }

    fn run(&self, settings: &Settings) -> Result<Printed, Error> {
        let _lock = run_confined(settings, Access::Write, || Journal::lock(settings, Self::COMMAND, &self.repo))?;
        let target = self.target(settings)?;
        gate::pass(settings, &self.preview_of(settings, &target)?)?;
        let text = match &target.to {
            Destination::Server(network) => target.to_server(network.clone())?,
            Destination::Folder(there) => target.to_folder(settings, there)?,
        };
        target.note(self.remote_name())?;
        Ok(Printed::of_text(&self.repo, text))
    }
}

impl Target<'_> {
    /// Pushes one commit to one branch, and nothing else.
    fn to_server(&self, network: Network<'_>) -> Result<String, Error> {
        let mut options = network.git_options();
        options.push(("http.followRedirects".to_owned(), "false".to_owned()));
        let refspec = format!("{}:refs/heads/{}", self.commit, self.branch);
        let words = [
            "push", "--no-verify", "--no-follow-tags", "--recurse-submodules=no", "--no-signed", "--", &self.url,
            &refspec,
        ];
        let call = GitCall { network: Some(network), env: git_variables(&options), ..GitCall::new(&words) };
        Ok(self.repository.read(&call)?.all())
    }

    /// Pushes to a folder without git's protocol, whose other end (git-receive-pack) is a program that works with the
    /// configuration and the hooks of that folder. The objects are put there as a pack, then the branch is moved.
    fn to_folder(&self, settings: &Settings, there: &Repository<'_>) -> Result<String, Error> {
        let (folder, name) = (&there.work, format!("refs/heads/{}", self.branch));
        if !there.is_bare && there.branch() == Some(&name) {
            let message = format!("{} is checked out in {folder}, so a push would leave its files behind", self.branch);
            return Err(Error::conflict(message).at("/remote").hint("push to a bare repository, or to another branch"));
        }
        let old = there.commit(&name)?;
        if old.as_ref() == Some(&self.commit) {
            return Ok("Everything up-to-date\n".to_owned());
        }
        if let Some(old) = &old {
            self.check_ancestor(old, folder)?;
        }
        let pack = there.objects().join("pack");
        with_tree(settings, Access::Write, |tree| tree.make_folder(&pack))?;
        let wanted = format!("{}\n{}", self.commit, old.iter().map(|old| format!("^{old}\n")).collect::<String>());
        let (objects, base) = (there.path(&there.objects()), self.repository.path(&pack.join("pack")));
        let env = self.repository.with_objects_in(&objects);
        let words = ["pack-objects", "--revs", "-q", &base];
        let write = vec![there.common.clone()];
        let call = GitCall { stdin: Some(&wanted), write, env, ..GitCall::without_work_tree(&words) };
        self.repository.read(&call)?;
        let was = old.unwrap_or_else(|| "0".repeat(self.commit.len()));
        there.update_refs(&["-m", "push", &name, &self.commit, &was], None)?;
        Ok(format!("To {}\n   {was}..{}  {}\n", self.url, self.commit, self.branch))
    }

    fn check_ancestor(&self, old: &str, folder: &RelPath) -> Result<(), Error> {
        let words = ["merge-base", "--is-ancestor", old, &self.commit];
        match self.repository.run(&GitCall::new(&words))?.status {
            0 => Ok(()),
            _ => {
                let message =
                    format!("{} of {folder} has commits that {} does not contain", self.branch, self.repository.work);
                Err(Error::conflict(message).at("/branch").hint("fetch and merge them first"))
            }
        }
    }

    /// Records what the remote has now, as git does after a push.
    fn note(&self, remote: &str) -> Result<(), Error> {
        let name = format!("refs/remotes/{remote}/{}", self.branch);
        self.repository.update_refs(&["-m", "update by push", &name, &self.commit], None)
    }
}
