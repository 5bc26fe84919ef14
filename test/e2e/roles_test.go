package e2e

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"podium/pkg/client"
)

// The API server tells which rules of which roles have allowed a request since
// it started. This suite asks it all the time, since it forgets when a test
// kills it. When the whole suite has run, each verb of each role of a daemon or
// a controller must have been of use, or stand in spares with the reason why it
// was not. Roles of people and of upstream's programs stand in otherRoles.

// spare is a right that a cluster needs, but not each run of this suite. Nothing
// in it is a pattern.
type spare struct {
	role     string // with the namespace before it, if it has one
	resource string // with its group before it, if it has one: apps/deployments
	verbs    string
	why      string
}

const (
	noToken    = "no client shows a token to this daemon's own pages; test/e2e/security does"
	noElection = "each daemon runs once here, without an election"
	noJoin     = "no machine joins; see test/e2e/multinode"
	noCloud    = "the cloud-controller-manager does not run; see test/e2e/cloud"
	noEvent    = "this controller reports failures only, or none that a test causes"
	repeated   = "an event is patched only when it happens again"
	lostAnswer = "the answer to a write was lost, or its name was taken"
	adoption   = "the object is adopted or released, and looked at before"
	oneNode    = "the one node is never lost; see test/e2e/multinode"
	noMirror   = "no test writes Endpoints by hand; see test/e2e/multinode"
)

var spares = []spare{
	{"system:kube-scheduler", "pods", "get", lostAnswer},
	{"system:kube-scheduler", "events", "patch", repeated},
	{"system:kube-scheduler", "authentication.k8s.io/tokenreviews", "create", noToken},
	{"system:kube-scheduler", "authorization.k8s.io/subjectaccessreviews", "create", noToken},
	{"kube-system/system::leader-locking-kube-scheduler", "coordination.k8s.io/leases", "create get update", noElection},

	{"system:kube-controller-manager", "authentication.k8s.io/tokenreviews", "create", noToken},
	{"system:kube-controller-manager", "authorization.k8s.io/subjectaccessreviews", "create", noToken},
	{"kube-system/system::leader-locking-kube-controller-manager", "coordination.k8s.io/leases", "create get update", noElection},

	{"system:cloud-controller-manager", "nodes", "list watch", noCloud},
	{"system:cloud-controller-manager", "services", "get list watch", noCloud},
	{"system:cloud-controller-manager", "authentication.k8s.io/tokenreviews", "create", noCloud},
	{"system:cloud-controller-manager", "authorization.k8s.io/subjectaccessreviews", "create", noCloud},
	{"kube-system/system:cloud-controller-identities", "serviceaccounts", "create", noCloud},
	{"kube-system/system:cloud-controller-identities", "serviceaccounts/token", "create", noCloud},
	{"kube-system/system:load-balancer-addresses", "coordination.k8s.io/leases", "create delete get list update", noCloud},
	{"kube-system/system::leader-locking-cloud-controller-manager", "coordination.k8s.io/leases", "create get update", noCloud},
	{"system:controller:cloud-node-controller", "nodes", "delete patch", noCloud},
	{"system:controller:cloud-node-controller", "nodes/status", "patch", noCloud},
	{"system:controller:cloud-node-controller", "events", "create patch", noCloud},
	{"system:controller:route-controller", "nodes/status", "patch", noCloud},
	{"system:controller:route-controller", "events", "create patch", noCloud},
	{"system:controller:service-controller", "services", "patch", noCloud},
	{"system:controller:service-controller", "services/status", "patch", noCloud},
	{"system:controller:service-controller", "events", "create patch", noCloud},

	{"system:node-proxier", "events", "create patch", noEvent},
	{"kube-system/system:node-proxier", "coordination.k8s.io/leases", "delete get", "kube-proxy stops in good order, or finds a Lease of its former process"},

	{"system:node", "authentication.k8s.io/tokenreviews", "create", noToken},
	{"system:node", "nodes", "patch", "the node was registered before, with other labels"},
	{"system:node", "events", "patch", repeated},
	{"system:node", "pods", "get", lostAnswer},
	{"system:node", "pods/eviction", "create", "no worker is upgraded; see test/e2e/upgrade"},
	{"system:node", "certificates.k8s.io/certificatesigningrequests", "list watch", "its request is signed before it begins to wait"},

	{"system:controller:certificate-controller", "authorization.k8s.io/subjectaccessreviews", "create", "only client certificates are approved by a review, and " + noJoin},
	{"system:controller:certificate-controller", "certificates.k8s.io/certificatesigningrequests", "delete", "a request is deleted an hour after its decision, or later"},
	{"kube-public/system:controller:bootstrap-signer", "configmaps", "update", noJoin},
	{"kube-system/system:controller:token-cleaner", "secrets", "delete", noJoin},

	{"system:controller:deployment-controller", "apps/deployments", "get", adoption},
	{"system:controller:deployment-controller", "apps/replicasets", "delete get patch", "the history is longer than its limit, a name is taken, or a ReplicaSet is adopted"},
	{"system:controller:deployment-controller", "events", "patch", repeated},
	{"system:controller:replicaset-controller", "apps/replicasets", "get", adoption},
	{"system:controller:replicaset-controller", "pods", "patch", adoption},
	{"system:controller:replicaset-controller", "events", "patch", repeated},
	{"system:controller:endpoint-controller", "endpoints", "delete", "a Service loses its selector"},
	{"system:controller:endpoint-controller", "events", "create patch", noEvent},
	{"system:controller:endpointslice-controller", "discovery.k8s.io/endpointslices", "delete get", "a slice is empty or one too many; " + lostAnswer},
	{"system:controller:endpointslice-controller", "events", "create patch", noEvent},
	{"system:controller:endpointslicemirroring-controller", "discovery.k8s.io/endpointslices", "create delete update", noMirror},
	{"system:controller:endpointslicemirroring-controller", "events", "create patch", noMirror},
	{"system:controller:generic-garbage-collector", "*/*", "get patch", "an owner is of a kind that is not watched, or a dependent is orphaned"},
	{"system:controller:namespace-controller", "namespaces/status", "update", "a namespace is not empty at the first look"},
	{"system:controller:node-controller", "nodes/status", "update", oneNode},
	{"system:controller:node-controller", "pods", "delete", oneNode},
	{"system:controller:node-controller", "pods/status", "patch", oneNode},
	{"system:controller:node-controller", "events", "create patch", oneNode},
	{"system:controller:pod-garbage-collector", "nodes", "get", oneNode},
	{"system:controller:pod-garbage-collector", "pods", "delete", oneNode},
	{"system:controller:pod-garbage-collector", "pods/status", "patch", oneNode},
	{"system:controller:root-ca-cert-publisher", "configmaps", "update", "the cluster's authority stays the same"},
	{"system:controller:tokens-controller", "serviceaccounts", "get", "no token is kept in a Secret; see test/conformance"},
	{"system:controller:tokens-controller", "secrets", "delete update", "no token is kept in a Secret; see test/conformance"},
}

// otherRoles are those of the system that no daemon of a cluster has.
var otherRoles = map[string]string{
	"system:aggregate-to-admin":               "a part of the role admin, for people",
	"system:aggregate-to-edit":                "a part of the role edit, for people",
	"system:aggregate-to-view":                "a part of the role view, for people",
	"system:public-info-viewer":               "every client",
	"system:discovery":                        "every client that is known",
	"system:basic-user":                       "every client that is known",
	"system:monitoring":                       "programs that collect metrics",
	"system:service-account-issuer-discovery": "every service account",
	"system:auth-delegator":                   "programs that ask who their clients are",
	"system:kube-aggregator":                  "upstream's aggregator",
	"system:kube-dns":                         "upstream's DNS server",
	"system:node-problem-detector":            "upstream's program of that name",
	"system:persistent-volume-provisioner":    "programs that provide volumes",
	"system:kubelet-api-admin":                "the API server at the kubelet, which asks for single pages",
	"system:node-bootstrapper":                "machines that join; see test/e2e/multinode",
	"system:certificates.k8s.io:certificatesigningrequests:nodeclient":     "machines that join; see test/e2e/multinode",
	"system:certificates.k8s.io:certificatesigningrequests:selfnodeclient": "nodes that renew their certificates; see test/e2e/multinode",
	"system:certificates.k8s.io:kube-apiserver-client-approver":            "programs that approve requests",
	"system:certificates.k8s.io:kube-apiserver-client-kubelet-approver":    "programs that approve requests",
	"system:certificates.k8s.io:kubelet-serving-approver":                  "programs that approve requests",
	"system:certificates.k8s.io:legacy-unknown-approver":                   "programs that approve requests",
}

// checked reports whether a role is a daemon's or a controller's.
func checked(role string) bool {
	_, other := otherRoles[role]
	return strings.HasPrefix(role, "system:") && !other
}

// roleLine is what the apiserver says of one line of a role.
type roleLine struct {
	Namespace, Role, Group, Resource, URL string
	Names, Used, Unused                   []string
}

func (l *roleLine) key() string {
	return strings.Join([]string{l.Namespace, l.Role, l.Group, l.Resource, l.URL, strings.Join(l.Names, ",")}, "|")
}

// roleWatch collects which rights were of use.
type roleWatch struct {
	stop context.CancelFunc
	done sync.WaitGroup

	mu   sync.Mutex
	used map[string]bool // keys of lines, with a verb
	last []roleLine
}

const rolesEvery = time.Second

// watchRoles looks until finish.
func watchRoles(c *cluster) (*roleWatch, error) {
	api, err := c.connect()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	w := &roleWatch{stop: cancel, used: map[string]bool{}}
	w.done.Go(func() {
		tick := time.NewTicker(rolesEvery)
		defer tick.Stop()
		for ctx.Err() == nil {
			_ = w.look(ctx, api) // it may be dead just now
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	})
	return w, nil
}

func (w *roleWatch) look(ctx context.Context, api *client.Client) error {
	body, _, err := api.Do(ctx, client.Request{Method: "GET", Path: "/debug/authorization/roles"})
	if err != nil {
		return err
	}
	var lines []roleLine
	if err := json.Unmarshal(body, &lines); err != nil {
		return fmt.Errorf("read the use of roles: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = lines
	for _, l := range lines {
		for _, verb := range l.Used {
			w.used[l.key()+"|"+verb] = true
		}
	}
	return nil
}

// finish returns which rights no daemon has used, which it lacked, and which
// exemptions are of no role.
func (w *roleWatch) finish(c *cluster) []string {
	w.stop()
	w.done.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return append(unusedRights(w.last, w.used), c.refusals()...)
}

// unusedRights compares the lines of all roles with what has been of use: keys
// of lines with a verb.
func unusedRights(lines []roleLine, used map[string]bool) []string {
	var problems []string
	if len(lines) == 0 {
		problems = append(problems, "the API server never told which roles were of use")
	}
	present := map[string]bool{} // rights and roles that there are
	for _, l := range lines {
		present[l.Role] = true
		for _, verb := range slices.Concat(l.Used, l.Unused) {
			present[l.right(verb)] = true
		}
		if !checked(l.Role) {
			continue
		}
		for _, verb := range l.Unused {
			// An informer lists only where the server cannot stream a list.
			streamed := verb == "list" && used[l.key()+"|watch"]
			if !used[l.key()+"|"+verb] && !streamed && !isSpare(l.right(verb)) {
				problems = append(problems, "no request needed the right "+l.right(verb))
			}
		}
	}
	for _, s := range spares {
		for verb := range strings.FieldsSeq(s.verbs) {
			if !present[s.right(verb)] {
				problems = append(problems, "no role has the right that is exempt: "+s.right(verb))
			}
		}
	}
	for role := range otherRoles {
		if !present[role] {
			problems = append(problems, "there is no role "+role)
		}
	}
	return problems
}

// right names a verb of a role: kube-system/role: get apps/deployments.
func (l *roleLine) right(verb string) string {
	return path.Join(l.Namespace, l.Role) + ": " + verb + " " + strings.TrimPrefix(l.Group+"/"+l.Resource+l.URL, "/")
}

func (s *spare) right(verb string) string { return s.role + ": " + verb + " " + s.resource }

func isSpare(right string) bool {
	return slices.ContainsFunc(spares, func(s spare) bool {
		return slices.ContainsFunc(strings.Fields(s.verbs), func(verb string) bool { return s.right(verb) == right })
	})
}

var refusal = regexp.MustCompile(`User \\*"system:[^"]*\\*" cannot [^:]*`)

// refusals are the rights that daemons lacked, by their logs. A kubelet that asked
// on behalf of a pod that was just deleted lacked none.
func (c *cluster) refusals() []string {
	files, err := filepath.Glob(filepath.Join(c.dir, "logs", "*.log"))
	if err != nil {
		return []string{err.Error()}
	}
	ofPods, err := filepath.Glob(filepath.Join(c.dir, "pods", "kube-system_*", "*", "*.log")) // cluster-dns
	if err != nil {
		return []string{err.Error()}
	}
	files = append(files, ofPods...)
	found := map[string]bool{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return []string{err.Error()}
		}
		for _, line := range strings.Split(string(data), "\n") {
			if m := refusal.FindString(line); m != "" && !strings.Contains(line, "no relationship found") {
				found[strings.TrimPrefix(file, c.dir+"/")+": "+m] = true
			}
		}
	}
	var out []string
	for text := range found {
		out = append(out, text)
	}
	slices.Sort(out)
	return out
}

// wholeSuite says whether all tests were asked for.
func wholeSuite() bool {
	return flag.Lookup("test.run").Value.String() == "" && flag.Lookup("test.skip").Value.String() == ""
}
