package credentialprovider

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/singleflight"

	"podium/pkg/client/ttlcache"
	"podium/pkg/kubelet/images"
	"podium/pkg/prom"
)

// maxCached limits the number of cached responses.
const maxCached = 1000

// Config configures Providers.
type Config struct {
	File, Dir string // the config file, and the directory of the programs
	Run       Run
	Now       func() time.Time
	Registry  prometheus.Registerer // nil: no metrics
	Log       *slog.Logger
}

// Providers runs the programs and caches their responses in memory. It is safe for
// concurrent use.
type Providers struct {
	cfg       Config
	providers []provider
	cache     *ttlcache.Cache[string, images.Auths]
	flights   singleflight.Group
	errors    *prometheus.CounterVec
	duration  *prometheus.HistogramVec
}

// New reads the config file.
func New(cfg Config) (*Providers, error) {
	list, err := load(cfg.File, cfg.Dir)
	if err != nil {
		return nil, err
	}
	f := prom.For(cfg.Registry)
	return &Providers{
		cfg: cfg, providers: list, cache: ttlcache.New[string, images.Auths](maxCached, cfg.Now),
		errors:   f.CounterVec("kubelet_credential_provider_plugin_errors_total", "Number of errors from credential provider plugin", "plugin_name"),
		duration: f.HistogramVec("kubelet_credential_provider_plugin_duration", "Duration of execution in seconds for credential provider plugin", prometheus.DefBuckets, "plugin_name"),
	}, nil
}

// Credentials returns what the programs that match the image know, in the order of the
// config file. A program that fails is logged and left out. It blocks while programs
// run: each for at most a minute, or until ctx ends.
func (p *Providers) Credentials(ctx context.Context, image string) []images.Auths {
	var out []images.Auths
	for i := range p.providers {
		one := &p.providers[i]
		if !one.matches(image) {
			continue
		}
		auths, err := p.ask(ctx, one, image)
		if err != nil {
			p.cfg.Log.Warn("credential provider failed", "provider", one.Name, "image", image, "error", err)
			continue
		}
		out = append(out, auths)
	}
	return out
}

// ask returns the answer of one program, from the cache if that has it. Pulls of one
// image at the same time run the program once.
func (p *Providers) ask(ctx context.Context, one *provider, image string) (images.Auths, error) {
	for _, kind := range []string{keyImage, keyRegistry, keyGlobal} {
		if auths, ok := p.cache.Get(cacheKey(one, kind, image)); ok {
			return auths, nil
		}
	}
	// The program outlives the pull that asked first, since others may wait for it.
	flight := p.flights.DoChan(cacheKey(one, keyImage, image), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), execTimeout)
		defer cancel()
		return p.run(ctx, one, image)
	})
	select {
	case r := <-flight:
		if r.Err != nil {
			return nil, r.Err
		}
		return r.Val.(images.Auths), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// run runs the program and caches its response.
func (p *Providers) run(ctx context.Context, one *provider, image string) (images.Auths, error) {
	input, err := json.Marshal(request{APIVersion: protocolVersion, Kind: "CredentialProviderRequest", Image: image})
	if err != nil {
		return nil, err
	}
	var env []string
	for _, v := range one.Env {
		env = append(env, v.Name+"="+v.Value)
	}
	began := p.cfg.Now()
	output, err := p.cfg.Run(ctx, filepath.Join(p.cfg.Dir, one.Name), one.Args, env, input)
	p.duration.WithLabelValues(one.Name).Observe(p.cfg.Now().Sub(began).Seconds())
	var r *response
	if err == nil {
		r, err = parseResponse(output)
	}
	if err != nil {
		p.errors.WithLabelValues(one.Name).Inc()
		return nil, fmt.Errorf("run %s: %w", one.Name, err)
	}
	keep := one.DefaultCacheDuration.Duration
	if r.CacheDuration != nil {
		keep = r.CacheDuration.Duration
	}
	p.cache.Put(cacheKey(one, r.CacheKeyType, image), r.Auth, keep)
	return r.Auth, nil
}

// cacheKey returns the key of a response that holds for an image, for its registry, or
// for all images.
func cacheKey(one *provider, kind, image string) string {
	what := ""
	switch kind {
	case keyImage:
		what = image
	case keyRegistry:
		what = images.Registry(image)
	}
	return one.Name + "\x00" + kind + "\x00" + what
}
