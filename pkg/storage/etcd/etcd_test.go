package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"podium/pkg/storage/storagetest"
)

func TestContractEmbedded(t *testing.T) {
	storagetest.Run(t, only(embed(t, t.TempDir())))
}

func TestContractExternal(t *testing.T) {
	storagetest.Run(t, only(open(t, ours(t).url)))
}

// Debian 12 has 3.4.
func TestContractDebian(t *testing.T) {
	path, err := exec.LookPath("etcd")
	if err != nil {
		t.Skip("no etcd on the PATH: install Debian's etcd-server")
	}
	storagetest.Run(t, only(open(t, newServer(t, path, "--enable-v2=false").url)))
}

func TestWatchGoesOnAcrossARestart(t *testing.T) {
	server := ours(t)
	s := open(t, server.url)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	rev, err := s.Create(ctx, "/registry/a", []byte("0"))
	if err != nil {
		t.Fatal(err)
	}
	w, err := s.Watch(ctx, "/registry/", rev)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { w.Stop() }()
	last := rev
	for i := 1; i <= 3; i++ {
		if rev, err = s.Update(ctx, "/registry/a", fmt.Append(nil, i), rev); err != nil {
			t.Fatalf("update %d: %v", i, err)
		}
		for last < rev {
			events, err := w.Next(ctx)
			if err != nil { // a watch may break; what counts is that it can be resumed
				w.Stop()
				if w, err = s.Watch(ctx, "/registry/", last); err != nil {
					t.Fatal(err)
				}
				continue
			}
			for _, ev := range events {
				if ev.IsMark() {
					continue
				}
				if ev.Revision <= last || string(ev.Value) != fmt.Sprint(i) {
					t.Fatalf("after revision %d came %d = %s, want %d", last, ev.Revision, ev.Value, i)
				}
				last = ev.Revision
			}
		}
		server.stop()
		server.start()
	}
}

// One transaction of another client writes several keys in one revision.
func TestWatchDoesNotSplitARevision(t *testing.T) {
	server := ours(t)
	s := open(t, server.url)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	other, err := clientv3.New(clientv3.Config{Endpoints: []string{server.url}})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	start, err := s.Revision(ctx)
	if err != nil {
		t.Fatal(err)
	}
	const txns, keys = 20, 100
	value := string(make([]byte, 10_000)) // a transaction is larger than a fragment
	for range txns {
		var ops []clientv3.Op
		for k := range keys {
			ops = append(ops, clientv3.OpPut(fmt.Sprintf("/registry/%d", k), value))
		}
		if _, err := other.Txn(ctx).Then(ops...).Commit(); err != nil {
			t.Fatal(err)
		}
	}
	w, err := s.Watch(ctx, "/registry/", start)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for last := start; last < start+txns; {
		events, err := w.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if len(events)%keys != 0 {
			t.Fatalf("%d events in one go: a revision was split", len(events))
		}
		last = events[len(events)-1].Revision
	}
}

func TestSharedReadIncludesEarlierWrites(t *testing.T) {
	s := open(t, ours(t).url)
	ctx := context.Background()
	var errs []error
	done := make(chan error)
	for w := range 32 {
		go func() {
			var err error
			for i := 0; i < 50 && err == nil; i++ {
				var made, now int64
				if made, err = s.Create(ctx, fmt.Sprintf("/registry/%d/%d", w, i), []byte("x")); err == nil {
					if now, err = s.Revision(ctx); err == nil && now < made {
						err = fmt.Errorf("revision %d after a write at %d", now, made)
					}
				}
			}
			done <- err
		}()
	}
	for range 32 {
		errs = append(errs, <-done)
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}
