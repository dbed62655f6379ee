//! That it breaks what it says, and nothing else.

use super::*;

/// Longer than any step takes.
const BOUND: Duration = Duration::from_secs(20);

/// What the server saw, a client that is connected to it through a proxy, and that.
async fn connected() -> (TcpStream, TcpStream, Proxy) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let proxy = Proxy::new(listener.local_addr().unwrap());
    let client = TcpStream::connect(proxy.address()).await.unwrap();
    let (server, _) = listener.accept().await.unwrap();
    (server, client, proxy)
}

async fn hears(stream: &mut TcpStream, wanted: &[u8]) {
    let mut heard = vec![0; wanted.len()];
    tokio::time::timeout(BOUND, stream.read_exact(&mut heard)).await.unwrap().unwrap();
    assert_eq!(heard, wanted);
}

async fn hears_nothing(stream: &mut TcpStream) {
    let mut heard = [0];
    assert!(tokio::time::timeout(Duration::from_millis(100), stream.read(&mut heard)).await.is_err());
}

#[tokio::test]
async fn one_way_is_held_and_goes_on_even_after_its_sender_is_gone() {
    let (mut server, mut client, proxy) = connected().await;
    proxy.hold_c2s();
    client.write_all(b"late").await.unwrap();
    server.write_all(b"answer").await.unwrap();
    hears(&mut client, b"answer").await;
    drop(client);
    hears_nothing(&mut server).await;
    proxy.forward();
    hears(&mut server, b"late").await;
    let end = tokio::time::timeout(BOUND, server.read(&mut [0])).await.unwrap();
    assert_eq!(end.unwrap(), 0);
}

#[tokio::test]
async fn the_answer_to_one_request_is_held() {
    let (mut server, mut client, proxy) = connected().await;
    proxy.hold_answers_to(["release".to_owned()]);
    for (asked, answered) in [(b"acquire", b"granted!"), (b"release", b"released")] {
        client.write_all(asked).await.unwrap();
        hears(&mut server, asked).await;
        server.write_all(answered).await.unwrap();
        match asked {
            b"acquire" => hears(&mut client, answered).await,
            _ => hears_nothing(&mut client).await,
        }
    }
    proxy.forward();
    hears(&mut client, b"released").await;
}

#[tokio::test]
async fn what_was_sent_arrives_after_its_sender_was_sent_away() {
    let (mut server, mut client, proxy) = connected().await;
    proxy.hold_c2s_of_present();
    client.write_all(b"first").await.unwrap();
    hears_nothing(&mut server).await;
    proxy.end_for_clients();
    let end = tokio::time::timeout(BOUND, client.read(&mut [0])).await.unwrap();
    assert_eq!(end.unwrap(), 0);
    drop(client);
    // It is answered, and more is sent: nobody is there for the answer.
    server.write_all(b"tick").await.unwrap();
    proxy.forward();
    hears(&mut server, b"first").await;
    server.write_all(b"tock").await.unwrap();
    let end = tokio::time::timeout(BOUND, server.read(&mut [0])).await.unwrap();
    assert_eq!(end.unwrap(), 0);
}

#[tokio::test]
async fn one_connection_hears_late_and_another_in_time() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let proxy = Proxy::new(listener.local_addr().unwrap());
    let mut pairs = Vec::new();
    for _ in 0..2 {
        let client = TcpStream::connect(proxy.address()).await.unwrap();
        pairs.push((client, listener.accept().await.unwrap().0));
    }
    assert_eq!(proxy.open(), [0, 1]);
    proxy.hold_answers_of(0);
    for (client, server) in &mut pairs {
        client.write_all(b"?").await.unwrap();
        hears(server, b"?").await;
        server.write_all(b"!").await.unwrap();
    }
    hears(&mut pairs[1].0, b"!").await;
    hears_nothing(&mut pairs[0].0).await;
    proxy.forward();
    hears(&mut pairs[0].0, b"!").await;
    pairs.truncate(1);
    let ended = async {
        while proxy.open() != [0] {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(BOUND, ended).await.unwrap();
}

#[tokio::test]
async fn answers_alone_are_held() {
    let (mut server, mut client, proxy) = connected().await;
    proxy.hold_s2c();
    client.write_all(b"request").await.unwrap();
    hears(&mut server, b"request").await;
    server.write_all(b"answer").await.unwrap();
    hears_nothing(&mut client).await;
    proxy.forward();
    hears(&mut client, b"answer").await;
}

/// Delays add nothing up: what is sent at once arrives at once, later.
#[tokio::test]
async fn one_way_is_delayed() {
    const DELAY: Duration = Duration::from_millis(500);
    let (mut server, mut client, proxy) = connected().await;
    proxy.delay_s2c(DELAY..DELAY * 2);
    let start = Instant::now();
    for _ in 0..10 {
        client.write_all(b"?").await.unwrap();
        hears(&mut server, b"?").await;
        server.write_all(b"!").await.unwrap();
    }
    hears(&mut client, b"!").await;
    assert!(start.elapsed() >= DELAY);
    hears(&mut client, b"!!!!!!!!!").await;
    assert!(start.elapsed() < DELAY * 10);
}

#[tokio::test]
async fn a_reset_loses_what_was_held_and_refused_is_closed() {
    let (mut server, mut client, proxy) = connected().await;
    proxy.hold_c2s();
    client.write_all(b"lost").await.unwrap();
    hears_nothing(&mut server).await;
    proxy.refuse();
    proxy.reset();
    for stream in [&mut client, &mut server] {
        let error = tokio::time::timeout(BOUND, stream.read(&mut [0])).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }
    let mut refused = TcpStream::connect(proxy.address()).await.unwrap();
    // Closed, or reset if something was sent; nothing is answered.
    assert!(matches!(tokio::time::timeout(BOUND, refused.read(&mut [0])).await.unwrap(), Ok(0) | Err(_)));
    assert_eq!(proxy.connections(), 1);
    proxy.forward();
    drop(TcpStream::connect(proxy.address()).await.unwrap());
    let carried = async {
        while proxy.connections() == 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(BOUND, carried).await.unwrap();
}
