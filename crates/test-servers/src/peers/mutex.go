// Go's concurrency.Mutex, told what to do by lines on standard input: see peers.rs. Its arguments are where the members
// are, and for how many seconds its session lasts.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/clientv3"
	"go.etcd.io/etcd/clientv3/concurrency"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Of a session that is closed nothing is left. While the store is away, that is tried again.
func end(session *concurrency.Session) {
	for try := 0; try < 10 && session.Close() != nil; try++ {
		time.Sleep(500 * time.Millisecond)
	}
}

func main() {
	client, err := clientv3.New(clientv3.Config{Endpoints: strings.Split(os.Args[1], ",")})
	check(err)
	seconds, err := strconv.Atoi(os.Args[2])
	check(err)
	// Whoever waits for a lock when standard input ends gives up.
	running, stop := context.WithCancel(context.Background())
	orders := make(chan string)
	go func() {
		lines := bufio.NewScanner(os.Stdin)
		for lines.Scan() {
			orders <- lines.Text()
		}
		stop()
		close(orders)
	}()
	var session *concurrency.Session
	var mutex *concurrency.Mutex
	for order := range orders {
		words := strings.Fields(order)
		if words[0] == "lock" {
			if session == nil {
				session, err = concurrency.NewSession(client, concurrency.WithTTL(seconds))
			}
			if err == nil {
				mutex = concurrency.NewMutex(session, words[1])
				err = mutex.Lock(running)
			}
			if err == nil {
				fmt.Println("locked", mutex.Key(), mutex.Header().Revision)
			}
		} else if err = mutex.Unlock(context.Background()); err == nil {
			fmt.Println("unlocked")
		}
		if err != nil {
			if session != nil {
				end(session)
			}
			fmt.Println("failed", err)
			session, err = nil, nil
		}
	}
	if session != nil {
		end(session)
	}
}
