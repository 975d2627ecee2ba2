//! scratch
use warmroute_e2e::*;
#[tokio::test]
async fn never() {
    let stack = Stack::builder("scratch").engines(2).start().await.unwrap();
    let e = stack.wait_until_steering().await.unwrap_err();
    println!("{e:#}");
    println!("{:#?}", stack.envoy.stats("^wasm").await.unwrap());
    let c = Client::http1(stack.url()).unwrap();
    println!("{:?}", c.stream(&tokens(3, 500), 3).await.unwrap().decision());
    stack.stop().await.unwrap();
}
