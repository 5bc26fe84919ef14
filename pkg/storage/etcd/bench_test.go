package etcd_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"

	"podium/pkg/storage"
	"podium/pkg/storage/etcd"
	"podium/pkg/storage/watchcache"
)

var podSized = bytes.Repeat([]byte("x"), 1000)

func BenchmarkEmbeddedStart(b *testing.B) {
	dir := b.TempDir()
	for b.Loop() {
		s, err := etcd.Embed(b.Context(), etcd.EmbeddedConfig{Dir: dir, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		s.Close()
		b.StartTimer()
	}
}

func BenchmarkEmbeddedCreate(b *testing.B) {
	for _, writers := range []int{1, 16} {
		b.Run(fmt.Sprintf("Writers%d", writers), func(b *testing.B) {
			s, err := etcd.Embed(b.Context(), etcd.EmbeddedConfig{Dir: b.TempDir(), Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			var n atomic.Int64
			b.ReportAllocs()
			b.SetParallelism(max(writers/2, 1))
			create := func() error {
				_, err := s.Create(b.Context(), fmt.Sprintf("/registry/pods/ns/%d", n.Add(1)), podSized)
				return err
			}
			if writers == 1 {
				for b.Loop() {
					if err := create(); err != nil {
						b.Fatal(err)
					}
				}
				return
			}
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := create(); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

// A write, then a read that must show it, through the feed.
func BenchmarkEmbeddedReadYourWrite(b *testing.B) {
	s := embed(b, b.TempDir())
	feed := watchcache.NewFeed(s, "/registry/", slog.New(slog.DiscardHandler))
	cache, err := feed.Add(b.Context(), watchcache.Config{Prefix: "/registry/pods/"})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error)
	go func() { done <- feed.Run(ctx) }()
	defer func() { cancel(); <-done }()
	i := 0
	for b.Loop() {
		i++
		if _, err := s.Create(ctx, fmt.Sprintf("/registry/other/%d", i), podSized); err != nil {
			b.Fatal(err)
		}
		if _, err := cache.Latest(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEmbeddedRevision(b *testing.B) {
	s := embed(b, b.TempDir())
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := s.Revision(b.Context()); err != nil {
				b.Error(err)
			}
		}
	})
}

func BenchmarkEmbeddedList10k(b *testing.B) {
	s := embed(b, b.TempDir())
	for i := range 10_000 {
		if _, err := s.Create(b.Context(), fmt.Sprintf("/registry/pods/ns/%05d", i), podSized); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		page, err := s.List(b.Context(), "/registry/pods/", storage.ListOptions{})
		if err != nil || len(page.KVs) != 10_000 {
			b.Fatal(len(page.KVs), err)
		}
	}
}
