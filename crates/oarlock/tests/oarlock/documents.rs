//! What the README says of the configuration and of the URLs is so.

use oarlock::{Config, ErrorKind};

const README: &str = include_str!("../../../../README.md");

#[test]
fn the_config_file_of_the_readme_is_read() {
    let (_, rest) = README.split_once("```toml\n").unwrap();
    let (toml, _) = rest.split_once("```").unwrap();
    let config = Config::from_toml(toml).unwrap();
    assert_eq!(config.url().unwrap().scheme(), "sqlite");
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn redis_is_here() {
    assert!(README.contains("| `redis://host` | hosts | here"));
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
    assert!(README.contains("| `zookeeper://h1,h2,h3` | hosts | here"));
    for scheme in ["zookeeper", "zk"] {
        let error = oarlock::connect(&format!("{scheme}://127.0.0.1:1?timeout=200ms")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
}

#[tokio::test]
async fn etcd_is_here_or_names_its_feature() {
    assert!(README.contains("| `etcd://h1,h2,h3` | hosts | here"));
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
