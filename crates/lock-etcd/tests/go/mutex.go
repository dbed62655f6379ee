// Go's concurrency.Mutex, told what to do by lines on standard input: "lock NAME" or "unlock". It answers each
// with a line: "locked KEY REVISION" or "unlocked".
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"

	"go.etcd.io/etcd/clientv3"
	"go.etcd.io/etcd/clientv3/concurrency"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	client, err := clientv3.New(clientv3.Config{Endpoints: strings.Split(os.Args[1], ",")})
	check(err)
	session, err := concurrency.NewSession(client)
	check(err)
	var mutex *concurrency.Mutex
	orders := bufio.NewScanner(os.Stdin)
	for orders.Scan() {
		words := strings.Fields(orders.Text())
		if words[0] == "lock" {
			mutex = concurrency.NewMutex(session, words[1])
			check(mutex.Lock(context.Background()))
			fmt.Println("locked", mutex.Key(), mutex.Header().Revision)
		} else {
			check(mutex.Unlock(context.Background()))
			fmt.Println("unlocked")
		}
	}
	check(session.Close())
}
