// Go's concurrency.Mutex, its Election and recipes.RWMutex, told what to do by lines on standard input: see peers.rs. Its
// arguments are where the members are, and for how many seconds its session lasts.
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

// Renews the lease, and has the members agree on a read that demands what is held. It counts only if both were done under
// one leader: one that is deposed and does not know it yet renews leases, too.
func confirm(running context.Context, client *clientv3.Client, session *concurrency.Session) (string, error) {
	soon, stop := context.WithTimeout(running, confirming)
	defer stop()
	for {
		renewed, over := client.KeepAliveOnce(soon, session.Lease())
		seen, err := client.Txn(soon).If(isHeld).Then(clientv3.OpGet(string(isHeld.Key))).Commit()
		if err != nil {
			return "", err
		}
		if !seen.Succeeded {
			return "lost", nil
		}
		if over != nil {
			return "", over
		}
		if renewed.RaftTerm == seen.Header.RaftTerm {
			return fmt.Sprint("held ", renewed.TTL*1000), nil
		}
	}
}

// As long as the store may take for that.
const confirming = 2 * time.Second

// What is true in the store as long as it holds.
var isHeld clientv3.Cmp

// Tells when it has the lock, and answers how to give it back.
func lock(running context.Context, session *concurrency.Session, how string, name string) (func() error, error) {
	if how == "lock" {
		mutex := concurrency.NewMutex(session, name)
		err := mutex.Lock(running)
		if err == nil {
			isHeld = mutex.IsOwner()
			fmt.Println("locked", mutex.Key(), mutex.Header().Revision)
		}
		return func() error { return mutex.Unlock(context.Background()) }, err
	}
	if how == "campaign" {
		election := concurrency.NewElection(session, name)
		err := election.Campaign(running, "theirs")
		if err == nil {
			isHeld = clientv3.Compare(clientv3.CreateRevision(election.Key()), "=", election.Rev())
			fmt.Println("locked", election.Key(), election.Rev())
		}
		return func() error { return election.Resign(context.Background()) }, err
	}
	mutex := recipe.NewRWMutex(session, name)
	lock, unlock := mutex.RLock, mutex.RUnlock
	if how == "write" {
		lock, unlock = mutex.Lock, mutex.Unlock
	}
	err := lock()
	if err == nil {
		// It tells no key: nobody who looks for it by this finds it.
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
		if words[0] == "check" {
			answer, unconfirmed := confirm(running, client, session)
			if unconfirmed != nil {
				answer = fmt.Sprint("failed ", unconfirmed)
			}
			fmt.Println(answer)
			continue
		}
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
