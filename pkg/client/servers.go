package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// servers are those of one cluster. The list never changes; which of it is
// turned to first does.
type servers struct {
	texts   []string
	urls    []*url.URL
	current atomic.Int32 // index of the one that answered last
}

// turn makes to the first to be asked, unless somebody else has turned from
// from since.
func (s *servers) turn(from, to int) {
	s.current.CompareAndSwap(int32(from), int32(to%len(s.urls)))
}

// Servers are the base URLs that requests go to, in order.
func (c *Client) Servers() []string { return slices.Clone(c.servers.Load().texts) }

// SetServers replaces them. The one in use stays in use if it is among them.
func (c *Client) SetServers(texts []string) error {
	if len(texts) == 0 {
		return errors.New("client: no server given")
	}
	next := &servers{texts: slices.Clone(texts)}
	for _, text := range texts {
		u, err := url.Parse(strings.TrimSuffix(text, "/"))
		if err != nil {
			return fmt.Errorf("client: server: %w", err)
		}
		if u.Host == "" || (u.Scheme != "https" && u.Scheme != "http") {
			return fmt.Errorf("client: server %q is not https://host:port", text)
		}
		next.urls = append(next.urls, u)
	}
	if old := c.servers.Load(); old != nil {
		next.current.Store(int32(max(0, slices.Index(texts, old.texts[old.current.Load()]))))
	}
	c.servers.Store(next)
	return nil
}

// askEvery is how often a daemon asks which servers its cluster has.
const askEvery = 30 * time.Second

// FollowServers keeps the list of servers until ctx ends: those of the
// configuration first, then those that the cluster says it has. changed, which
// may be nil, is told of the latter when they have changed.
func (c *Client) FollowServers(ctx context.Context, changed func([]string)) {
	for {
		if found, err := c.AskServers(ctx); err == nil {
			all := slices.Clone(c.cfg.Servers)
			for _, s := range found {
				if !slices.Contains(all, s) {
					all = append(all, s)
				}
			}
			if !slices.Equal(all, c.servers.Load().texts) && c.SetServers(all) == nil && changed != nil {
				changed(found)
			}
		}
		if sleep(ctx, askEvery) != nil {
			return
		}
	}
}

// AskServers are the cluster's servers as discovery shows them. What is not
// there yet, or unreachable, is not the end: the next time may be better.
func (c *Client) AskServers(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, askEvery/3)
	defer cancel()
	body, _, err := c.Do(ctx, Request{Path: "/api"})
	if err != nil {
		return nil, err
	}
	var versions metav1.APIVersions
	if err := json.Unmarshal(body, &versions); err != nil {
		return nil, fmt.Errorf("read /api: %w", err)
	}
	var out []string
	for _, s := range versions.ServerAddressByClientCIDRs {
		if s.ServerAddress != "" {
			out = append(out, "https://"+s.ServerAddress)
		}
	}
	return out, nil
}
