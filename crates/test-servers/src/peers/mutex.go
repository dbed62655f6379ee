// Go's concurrency.Mutex and recipes.RWMutex, told what to do by lines on standard input: see peers.rs. Its arguments are where the members
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
	recipe "go.etcd.io/etcd/contrib/recipes"
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

// Tells when it has the lock, and answers how to give it back.
func lock(running context.Context, session *concurrency.Session, how string, name string) (func() error, error) {
	if how == "lock" {
		mutex := concurrency.NewMutex(session, name)
		err := mutex.Lock(running)
		if err == nil {
			fmt.Println("locked", mutex.Key(), mutex.Header().Revision)
		}
		return func() error { return mutex.Unlock(context.Background()) }, err
	}
	mutex := recipe.NewRWMutex(session, name)
	lock, unlock := mutex.RLock, mutex.RUnlock
	if how == "write" {
		lock, unlock = mutex.Lock, mutex.Unlock
	}
	err := lock()
	if err == nil {
		fmt.Println("locked", name)
	}
	return unlock, err
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
	var unlock func() error
	for order := range orders {
		words := strings.Fields(order)
		if words[0] == "unlock" {
			if err = unlock(); err == nil {
				fmt.Println("unlocked")
			}
		} else {
			if session == nil {
				session, err = concurrency.NewSession(client, concurrency.WithTTL(seconds))
			}
			if err == nil {
				unlock, err = lock(running, session, words[0], words[1])
			}
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
