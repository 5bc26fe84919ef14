package aggregation

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"podium/pkg/apiserver/discovery"
	"podium/pkg/backoff"
)

// remote is a group version that a Service serves. A change of the APIService's spec
// makes a new one.
type remote struct {
	a         *Aggregator
	name      string
	uid       types.UID
	gv        schema.GroupVersion
	spec      apiregistrationv1.APIServiceSpec
	server    *server
	available atomic.Bool   // the APIService's condition
	places    chan struct{} // a semaphore of the requests without an answer
	again     chan struct{} // wakes run; of capacity 1

	mu    sync.Mutex
	found apidiscoveryv2.APIVersionDiscovery
	etag  string   // of the aggregated discovery document that found is from
	doc   document // OpenAPI v3
	doc2  document // OpenAPI v2
}

// maxUnanswered limits the requests that wait for one group version's server to begin
// its answer, so that a server that hangs cannot take every seat of flow control.
const maxUnanswered = 100

func newRemote(a *Aggregator, s *apiregistrationv1.APIService) *remote {
	s = s.DeepCopy()
	if s.Spec.Service.Port == nil {
		apiregistrationv1.SetDefaults_ServiceReference(s.Spec.Service)
	}
	return &remote{
		a: a, name: s.Name, uid: s.UID, gv: versionOf(s), spec: s.Spec, server: newServer(&a.Config, &s.Spec),
		places: make(chan struct{}, maxUnanswered), again: make(chan struct{}, 1),
		found: apidiscoveryv2.APIVersionDiscovery{
			Version: s.Spec.Version, Resources: []apidiscoveryv2.APIResourceDiscovery{}, Freshness: apidiscoveryv2.DiscoveryFreshnessStale,
		},
	}
}

// path returns the path of the group version's discovery document.
func (r *remote) path() string {
	if r.gv.Group == "" {
		return "/api/" + r.gv.Version
	}
	return "/apis/" + r.gv.String()
}

// run checks the server, and reads what it serves, until ctx ends: every checkEvery,
// after changes of its Service, and with back-off while it fails.
func (r *remote) run(ctx context.Context) {
	defer r.server.close()
	retry := backoff.Backoff{Initial: time.Second, Max: checkEvery}
	for {
		ok := r.check(ctx)
		if ok && r.redescribe(ctx) {
			r.a.publish()
		}
		wait := checkEvery
		if ok {
			retry.Reset()
		} else {
			wait = retry.Next()
		}
		began := time.Now()
		if backoff.SleepOrWake(ctx, wait, r.again) != nil {
			return
		}
		if time.Since(began) < wait {
			retry.Reset() // its Service changed: it may answer soon
		}
	}
}

// published returns what is known of the group version.
func (r *remote) published() Published {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Published{
		Remote: discovery.Remote{
			Group: r.gv.Group, GroupPriority: r.spec.GroupPriorityMinimum, VersionPriority: r.spec.VersionPriority, APIVersionDiscovery: r.found,
		},
		Path: strings.TrimPrefix(r.path(), "/"), OpenAPI: r.doc.text, OpenAPIV2: r.doc2.text,
	}
}
