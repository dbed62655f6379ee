//! What the pages say of settings and URLs is true, their links lead somewhere, and their lines are short.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use oarlock::{Config, ErrorKind};

const CONFIGURATION: &str = include_str!("../../../../docs/manual/configuration.md");
const STORES: &str = include_str!("../../../../docs/manual/stores.md");
/// What the names of links mean in rustdoc.
const RUSTDOC: &str = include_str!("../../src/manual/links.md");

/// The widest line of a page.
const WIDTH: usize = 120;

#[test]
fn the_config_file_of_the_manual_is_read() {
    let (_, rest) = CONFIGURATION.split_once("```toml\n").unwrap();
    let (toml, _) = rest.split_once("```").unwrap();
    let config = Config::from_toml(toml).unwrap();
    assert_eq!(config.url().unwrap().scheme(), "sqlite");
}

#[test]
fn the_readme_is_short() {
    let readme = read(&root().join("README.md"));
    assert!(readme.split_whitespace().count() <= 700);
}

#[test]
fn no_line_is_wide() {
    let mut wide = Vec::new();
    for page in pages().into_iter().chain([root().join("docs/guarantees.in.md")]) {
        let text = read(&page);
        let lines = text.lines().enumerate().filter(|(_, line)| line.chars().count() > WIDTH);
        wide.extend(lines.map(|(number, _)| format!("{}:{}", page.display(), number + 1)));
    }
    assert!(wide.is_empty(), "more than {WIDTH} columns: {wide:?}");
}

#[test]
fn links_lead_somewhere() {
    let mut broken = Vec::new();
    for page in pages() {
        let text = prose(&read(&page));
        let defined = definitions(&text);
        for label in labels(&text) {
            if !defined.contains_key(label) {
                broken.push(format!("{}: nothing says what [{label}] is", page.display()));
            }
        }
        for target in targets(&text).into_iter().chain(defined.into_values()) {
            if !leads_somewhere(&page, target) {
                broken.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// Rustdoc needs a meaning of its own for each name, and a symbolic link to each page.
#[test]
fn pages_are_rustdoc_too() {
    let known = definitions(RUSTDOC);
    let manual = root().join("docs/manual");
    let mut lacking = Vec::new();
    for page in pages().into_iter().filter(|page| page.starts_with(&manual) || page.ends_with("README.md")) {
        for label in definitions(&prose(&read(&page))).keys() {
            if !known.contains_key(label) {
                lacking.push(format!("src/manual/links.md lacks [{label}] of {}", page.display()));
            }
        }
        if page.starts_with(&manual) {
            let copy = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/manual").join(page.file_name().unwrap());
            assert_eq!(fs::canonicalize(copy).unwrap(), fs::canonicalize(&page).unwrap());
        }
    }
    assert!(lacking.is_empty(), "{}", lacking.join("\n"));
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All pages but the source of a generated one, whose links are not those of Markdown.
fn pages() -> Vec<PathBuf> {
    let is_page = |path: &PathBuf| {
        path.extension().is_some_and(|extension| extension == "md") && !path.to_string_lossy().ends_with(".in.md")
    };
    let folders = ["", "docs", "docs/manual"].map(|folder| root().join(folder));
    let pages = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap());
    let mut pages: Vec<_> = pages.map(|entry| entry.unwrap().path()).filter(is_page).collect();
    pages.sort();
    assert!(pages.len() > 20);
    pages
}

/// A page without its blocks of code.
fn prose(text: &str) -> String {
    text.split("```").step_by(2).collect()
}

/// Lines such as `[fencing]: fencing.md`.
fn definitions(text: &str) -> BTreeMap<&str, &str> {
    text.lines().filter_map(|line| line.strip_prefix('[')?.split_once("]: ")).collect()
}

/// The names of links: `[Fencing][fencing]`, and with code alone, `` [`Fence`] ``.
fn labels(text: &str) -> Vec<&str> {
    let named = text.split("][").skip(1).filter_map(|rest| Some(rest.split_once(']')?.0));
    let code = text.match_indices("[`").filter_map(|(at, _)| {
        let (label, rest) = text[at + 1..].split_once(']')?;
        (label.ends_with('`') && !rest.starts_with(['(', '[', ':'])).then_some(label)
    });
    named.chain(code).collect()
}

/// Those that stand in the text: `[cases](cases.md "title")`.
fn targets(text: &str) -> Vec<&str> {
    let inline = text.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
    inline.map(|target| target.split_whitespace().next().unwrap_or_default()).collect()
}

fn leads_somewhere(page: &Path, target: &str) -> bool {
    if target.starts_with("https://") {
        return true;
    }
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    let file = if file.is_empty() { page.to_owned() } else { page.parent().unwrap().join(file) };
    if heading.is_empty() {
        return file.exists();
    }
    fs::read_to_string(file).is_ok_and(|text| {
        let headings = text.lines().filter(|line| line.starts_with('#'));
        headings.map(|line| slug(line.trim_start_matches('#').trim())).any(|slug| slug == heading)
    })
}

/// As a heading is called in a link.
fn slug(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn redis_is_here() {
    assert!(STORES.contains("| `redis://host` | hosts |"));
    let error = oarlock::connect("redis://127.0.0.1:1").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    #[cfg(feature = "tls")]
    assert_eq!(oarlock::connect("rediss://127.0.0.1:1").await.unwrap_err().kind(), ErrorKind::Unavailable);
    for url in ["redis+sentinel://127.0.0.1:1/main", "redis+cluster://127.0.0.1:1"] {
        assert_eq!(oarlock::connect(url).await.unwrap_err().kind(), ErrorKind::Unavailable, "{url}");
    }
}

#[cfg(feature = "zookeeper")]
#[tokio::test]
async fn zookeeper_is_here() {
    assert!(STORES.contains("| `zookeeper://h1,h2,h3` | hosts |"));
    for scheme in ["zookeeper", "zk"] {
        let error = oarlock::connect(&format!("{scheme}://127.0.0.1:1?timeout=200ms")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
}

#[tokio::test]
async fn memcached_is_here_or_names_its_feature() {
    assert!(STORES.contains("| `memcached://host` | hosts |"));
    let error = oarlock::connect("memcached://127.0.0.1:1").await.unwrap_err();
    if cfg!(feature = "memcached") {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    } else {
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("the cargo feature \"memcached\""), "{error}");
    }
}

#[tokio::test]
async fn etcd_is_here_or_names_its_feature() {
    assert!(STORES.contains("| `etcd://h1,h2,h3` | hosts |"));
    let error = oarlock::connect("etcd://127.0.0.1:1").await.unwrap_err();
    if cfg!(feature = "etcd") {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    } else {
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("the cargo feature \"etcd\""), "{error}");
    }
    let error = oarlock::connect("etcds://127.0.0.1:1").await.unwrap_err();
    assert_eq!(error.kind() == ErrorKind::Unavailable, cfg!(all(feature = "etcd", feature = "tls")), "{error}");
}

#[tokio::test]
async fn what_is_no_url_of_ours_is_told_what_is() {
    let error = oarlock::connect("rediss+typo://host").await.unwrap_err().to_string();
    assert!(error.contains("sqlite") && error.contains("memory"), "{error}");
}
