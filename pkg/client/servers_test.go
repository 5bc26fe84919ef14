package client_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"podium/pkg/client"
)

// A server that accepts a request and does not answer is not tried first again.
func TestASilentServerIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []string
		c := fake(t, func(r *http.Request) (*http.Response, error) {
			asked = append(asked, r.URL.Host)
			if r.URL.Host == "a" {
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
			return answer(200, nil, `{"kind":"Pod","apiVersion":"v1"}`), nil
		}, "https://a", "https://b")
		get := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := client.For[*corev1.Pod](c).In("ns").Get(ctx, "x")
			return err
		}
		if err := get(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("of a silent server: %v", err)
		}
		if err := get(); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff("a b", strings.Join(asked, " ")); diff != "" {
			t.Error(diff)
		}
	})
}

func TestFollowServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var mu sync.Mutex // guards what follows
		present, down := []string{"one:1", "two:2"}, map[string]bool{}
		var told [][]string
		c := fake(t, func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			if down[r.URL.Host] {
				return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
			}
			if r.URL.Path != "/api" {
				return answer(200, nil, `{"kind":"Pod","apiVersion":"v1"}`), nil
			}
			var list []string
			for _, s := range present {
				list = append(list, `{"clientCIDR":"0.0.0.0/0","serverAddress":"`+s+`"}`)
			}
			return answer(200, nil, `{"kind":"APIVersions","versions":["v1"],"serverAddressByClientCIDRs":[`+strings.Join(list, ",")+`]}`), nil
		}, "https://given")
		go c.FollowServers(ctx, func(found []string) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, found)
		})
		synctest.Wait()
		if diff := cmp.Diff([]string{"https://given", "https://one:1", "https://two:2"}, c.Servers()); diff != "" {
			t.Error(diff)
		}
		mu.Lock()
		present = []string{"two:2", "three:3"}
		mu.Unlock()
		time.Sleep(time.Minute)
		if diff := cmp.Diff([]string{"https://given", "https://two:2", "https://three:3"}, c.Servers()); diff != "" {
			t.Error(diff)
		}
		mu.Lock()
		if diff := cmp.Diff([][]string{{"https://one:1", "https://two:2"}, {"https://two:2", "https://three:3"}}, told); diff != "" {
			t.Errorf("told: %s", diff)
		}
		down["given"], down["two:2"] = true, true
		mu.Unlock()
		if _, err := client.For[*corev1.Pod](c).In("ns").Get(ctx, "x"); err != nil {
			t.Errorf("one server of the list is there: %v", err)
		}
		cancel()
		synctest.Wait()
	})
}
