//! `ken-coder clone`: clones a repository into a new folder.

use ken_tool::Error;
use ken_types::ops::tools::Risk;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::call::Operation;
use crate::command::recorded;
use crate::confine::{Access, with_tree};
use crate::git::Printed;
use crate::network::{Remote, describe, git_variables, remote_of};
use crate::policy::{self, Approval};
use crate::preview::Preview;
use crate::rel_path::{Layout, RelPath};
use crate::repository::{GitCall, Repository, own_folder, read_without_repository};
use crate::sandbox;
use crate::settings::Settings;
use crate::tree::Links;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Clone {
    url: String,
    repo: RelPath,
}

impl Clone {
    fn check<'a>(&self, settings: &'a Settings) -> Result<Remote<'a>, Error> {
        if settings.layout == Layout::Folder {
            let message = "this session works in one folder, and a new repository would be outside of it";
            return Err(Error::forbidden(message).hint("clone it in a session without a folder"));
        }
        if settings.layout.project(&self.repo).as_ref() != Some(&self.repo) {
            let message = format!("{}: a new repository is repos/NAME or projects/NAME", self.repo);
            return Err(Error::invalid("/repo", message));
        }
        if self.url.starts_with('-') || self.url.chars().any(char::is_control) {
            return Err(Error::invalid("/url", "it is not the URL of a repository"));
        }
        let remote = remote_of(settings, &self.repo, &self.repo, "/url", &self.url)?;
        let there = with_tree(settings, Access::Read, |tree| tree.stat(&self.repo, Links::Refuse))?;
        match there {
            None => Ok(remote),
            Some(_) => Err(Error::conflict(format!("{} is there already", self.repo)).at("/repo")),
        }
    }

    fn fetch(&self, settings: &Settings, remote: &Remote<'_>) -> Result<String, Error> {
        let own = own_folder()?;
        let bundle = own.path().join("clone.bundle").display().to_string();
        let mut words = GitCall::new(&["clone", "--template=", "--no-recurse-submodules"]).words;
        let mut env = remote.network().map(|network| git_variables(&network.git_options())).unwrap_or_default();
        if let Remote::Folder(folder) = remote {
            // The other end of git's protocol would work with the configuration of that folder. A bundle has none.
            let there = Repository::open(settings, folder)?;
            let source = there.own("clone.bundle");
            let path = source.display().to_string();
            there.read(&GitCall::without_work_tree(&["bundle", "create", "-q", &path, "--all", "HEAD"]))?;
            std::fs::copy(source, &bundle).map_err(|error| Error::unavailable(format!("the bundle: {error}")))?;
            env.push("GIT_ALLOW_PROTOCOL=file".to_owned());
            words.extend(["--".to_owned(), bundle.clone()]);
        } else {
            words.extend(["--".to_owned(), self.url.clone()]);
        }
        words.push(".".to_owned());
        let network = remote.network().cloned();
        let write = vec![self.repo.clone()];
        let call = GitCall { words, env, network, write: write.clone(), ..GitCall::default() };
        let cloned = read_without_repository(settings, &self.repo, own.path(), &call)?.all();
        if remote.folder().is_some() {
            // The configuration is still the one that git has just written.
            let words = ["config", "--file", ".git/config", "remote.origin.url", &self.url];
            let call = GitCall { write, ..GitCall::new(&words) };
            read_without_repository(settings, &self.repo, own.path(), &call)?;
        }
        Ok(cloned.replace(&bundle, &self.url))
    }
}

impl Operation for Clone {
    const NAME: &'static str = "ken-coder clone";
    const ABOUT: &'static str = "Clone a git repository into the workspace";
    const FIELDS: &'static str = "Fields: url (http or https, of a host that the rule of the new folder names; or the path of a folder \
        of the workspace), repo (the new folder, such as repos/site). Hooks are not run, submodules are not fetched.";
    type Answer = Printed;

    fn preview(&self, settings: &Settings) -> Result<Preview, Error> {
        let remote = self.check(settings)?;
        let verdict = policy::of_folder(&settings.rules, &self.repo, "a repository is fetched");
        let action = json!({"git": "clone", "url": self.url, "repo": self.repo, "network": describe(remote.network())});
        let about = (format!("Clone {} to {}", self.url, self.repo), &self.repo, Risk::Medium);
        let profile = sandbox::profile(settings, std::slice::from_ref(&self.repo), remote.network());
        Ok(Preview::new(settings, verdict, "repo.clone", about, action, None, (&profile, &Value::Null)))
    }

    fn run(&self, settings: &Settings) -> Result<Printed, Error> {
        let verdict = policy::of_folder(&settings.rules, &self.repo, "");
        if verdict.approval == Approval::Deny {
            return Err(Error::forbidden(verdict.reason));
        }
        let remote = self.check(settings)?;
        // The folder must exist before the sandbox can be given access to it.
        with_tree(settings, Access::Write, |tree| tree.make_folder(&self.repo))?;
        let scope = std::slice::from_ref(&self.repo);
        let cloned =
            recorded(settings, Self::COMMAND, (&self.repo, scope), |_| Ok(()), |_| self.fetch(settings, &remote));
        if cloned.is_err() {
            // After a failed clone, git leaves the folder empty.
            let _ = with_tree(settings, Access::Write, |tree| {
                tree.remove_folder(&self.repo);
                Ok(())
            });
        }
        let (text, _) = cloned?;
        Ok(Printed::of_text(&self.repo, text))
    }
}
