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

	"podium/pkg/backoff"
)

// servers is an immutable list of the servers of one cluster, and the index of the one
// to try first.
type servers struct {
	texts   []string
	urls    []*url.URL
	current atomic.Int32 // index of the one that answered last
}

// turn makes server to the first to be tried, unless another request has already
// changed it from from.
func (s *servers) turn(from, to int) {
	s.current.CompareAndSwap(int32(from), int32(to%len(s.urls)))
}

// Servers returns the base URLs of the servers, in order.
func (c *Client) Servers() []string { return slices.Clone(c.servers.Load().texts) }

// SetServers replaces the servers. The one in use stays in use if it is in texts. It
// returns an error, and changes nothing, if a URL is invalid.
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

// refreshPeriod is how often FollowServers reads the addresses of the API servers.
const refreshPeriod = 30 * time.Second

// FollowServers keeps the list of servers up to date until ctx ends: first those of the
// configuration, then those that the cluster reports. changed, which may be nil, is
// called with the reported servers when the list changes.
func (c *Client) FollowServers(ctx context.Context, changed func([]string)) {
	for {
		if found, err := c.DiscoverServers(ctx); err == nil {
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
		if backoff.Sleep(ctx, refreshPeriod) != nil {
			return
		}
	}
}

// DiscoverServers returns the addresses of the API servers as discovery reports them. Callers retry
// after an error.
func (c *Client) DiscoverServers(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, refreshPeriod/3)
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
