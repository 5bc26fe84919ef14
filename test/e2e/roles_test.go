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

// The API server reports which rules of which roles have allowed a request since it started.
// This suite polls the report, which is lost when a test kills the API server. After the whole
// suite, each verb of each role of a daemon or a controller must have been used, or be in
// spares with a reason. Roles of users and of upstream's programs are in otherRoles.

// spare is a permission that a cluster needs, but not every run of this suite. Its fields are
// not patterns.
type spare struct {
	role     string // with the namespace before it, if it has one
	resource string // with its group before it, if it has one: apps/deployments
	verbs    string
	why      string
}

const (
	noToken      = "no client shows a token to this daemon's own pages; test/e2e/security does"
	noElection   = "each daemon runs once here, without an election"
	noJoin       = "no machine joins; see test/e2e/multinode"
	noCloud      = "the cloud-controller-manager does not run; see test/e2e/cloud"
	noEvent      = "this controller reports failures only, or none that a test causes"
	repeated     = "an event is patched only when it happens again"
	lostAnswer   = "the answer to a write was lost, or its name was taken"
	adoption     = "the object is adopted or released, and looked at before"
	oneNode      = "the one node is never lost; see test/e2e/multinode"
	noMirror     = "no test writes Endpoints by hand; see test/e2e/multinode"
	noReplicas   = "no test creates a ReplicationController; see test/conformance"
	noVictim     = "no pod is preempted; see test/conformance"
	noStateful   = "no test creates a StatefulSet; see test/conformance"
	noQuota      = "no test creates a ResourceQuota; see test/conformance"
	noBudget     = "no test creates a PodDisruptionBudget; see test/conformance"
	noDaemons    = "no test creates a DaemonSet; see test/conformance"
	noAttributes = "no test deletes a VolumeAttributesClass; see pkg/controllers"
	noJobs       = "no test creates a Job or a CronJob; see test/conformance"
)

var spares = []spare{
	{"system:kube-scheduler", "pods", "delete get", noVictim},
	{"system:kube-scheduler", "events", "patch", repeated},
	{"system:kube-scheduler", "resource.k8s.io/resourceclaims", "delete", "no claim of a failed attempt is in the way; see pkg/scheduler"},
	{"system:kube-scheduler", "authentication.k8s.io/tokenreviews", "create", noToken},
	{"system:kube-scheduler", "authorization.k8s.io/subjectaccessreviews", "create", noToken},
	{"kube-system/system::leader-locking-kube-scheduler", "coordination.k8s.io/leases", "create get update watch", noElection},

	{"system:kube-controller-manager", "authentication.k8s.io/tokenreviews", "create", noToken},
	{"system:kube-controller-manager", "authorization.k8s.io/subjectaccessreviews", "create", noToken},
	{"kube-system/system::leader-locking-kube-controller-manager", "coordination.k8s.io/leases", "create get update watch", noElection},

	{"system:cloud-controller-manager", "nodes", "list watch", noCloud},
	{"system:cloud-controller-manager", "services", "get list watch", noCloud},
	{"system:cloud-controller-manager", "authentication.k8s.io/tokenreviews", "create", noCloud},
	{"system:cloud-controller-manager", "authorization.k8s.io/subjectaccessreviews", "create", noCloud},
	{"kube-system/system:cloud-controller-identities", "serviceaccounts", "create", noCloud},
	{"kube-system/system:cloud-controller-identities", "serviceaccounts/token", "create", noCloud},
	{"kube-system/system:load-balancer-addresses", "coordination.k8s.io/leases", "create delete get list update", noCloud},
	{"kube-system/system::leader-locking-cloud-controller-manager", "coordination.k8s.io/leases", "create get update watch", noCloud},
	{"system:controller:cloud-node-controller", "nodes", "delete patch", noCloud},
	{"system:controller:cloud-node-controller", "nodes/status", "patch", noCloud},
	{"system:controller:cloud-node-controller", "events", "create patch", noCloud},
	{"system:controller:route-controller", "nodes/status", "patch", noCloud},
	{"system:controller:route-controller", "events", "create patch", noCloud},
	{"system:controller:service-controller", "services", "patch", noCloud},
	{"system:controller:service-controller", "services/status", "patch", noCloud},
	{"system:controller:service-controller", "events", "create patch", noCloud},

	{"system:controller:service-cidrs-controller", "networking.k8s.io/ipaddresses", "list", "no ServiceCIDR is deleted; see test/conformance"},

	{"system:node-proxier", "events", "create patch", noEvent},
	{"kube-system/system:node-proxier", "coordination.k8s.io/leases", "delete get", "kube-proxy stops in good order, or finds a Lease of its former process"},

	{"system:node", "authentication.k8s.io/tokenreviews", "create", noToken},
	{"system:node", "nodes", "patch", "the node was registered before, with other labels"},
	{"system:node", "events", "patch", repeated},
	{"system:node", "pods", "get", lostAnswer},
	{"system:node", "persistentvolumeclaims/status", "patch", "no volume grows; see pkg/kubelet/csi"},
	{"system:node", "node.k8s.io/runtimeclasses", "get", "no pod names a RuntimeClass; see test/conformance"},
	{"system:node", "pods/eviction", "create", "no worker is upgraded; see test/e2e/upgrade"},
	{"system:node", "certificates.k8s.io/certificatesigningrequests", "list watch", "its request is signed before it begins to wait"},

	{"system:controller:attachdetach-controller", "events", "patch", repeated},
	{"system:controller:attachdetach-controller", "storage.k8s.io/volumeattachments/status", "patch", "no volume is of iscsi; see test/e2e/vm"},

	{"system:controller:certificate-controller", "authorization.k8s.io/subjectaccessreviews", "create", "only client certificates are approved by a review, and " + noJoin},
	{"system:controller:certificate-controller", "certificates.k8s.io/certificatesigningrequests", "delete", "a request is deleted an hour after its decision, or later"},
	{"kube-public/system:controller:bootstrap-signer", "configmaps", "update", noJoin},
	{"kube-system/system:controller:token-cleaner", "secrets", "delete", noJoin},

	{"system:controller:daemon-set-controller", "apps/daemonsets", "get", noDaemons},
	{"system:controller:daemon-set-controller", "apps/daemonsets/status", "update", noDaemons},
	{"system:controller:daemon-set-controller", "apps/controllerrevisions", "create delete get patch", noDaemons},
	{"system:controller:daemon-set-controller", "pods", "create delete patch", noDaemons},
	{"system:controller:daemon-set-controller", "events", "create patch", noDaemons},
	{"system:controller:deployment-controller", "apps/deployments", "get", adoption},
	{"system:controller:deployment-controller", "apps/replicasets", "delete get patch", "the history is longer than its limit, a name is taken, or a ReplicaSet is adopted"},
	{"system:controller:deployment-controller", "events", "patch", repeated},
	{"system:controller:replicaset-controller", "apps/replicasets", "get", adoption},
	{"system:controller:replicaset-controller", "pods", "patch", adoption},
	{"system:controller:replicaset-controller", "events", "patch", repeated},
	{"system:controller:replication-controller", "replicationcontrollers", "get", noReplicas},
	{"system:controller:replication-controller", "replicationcontrollers/status", "update", noReplicas},
	{"system:controller:replication-controller", "pods", "create delete patch", noReplicas},
	{"system:controller:replication-controller", "events", "create patch", noReplicas},
	{"system:controller:statefulset-controller", "apps/statefulsets", "get", noStateful},
	{"system:controller:statefulset-controller", "apps/statefulsets/status", "update", noStateful},
	{"system:controller:statefulset-controller", "apps/controllerrevisions", "create delete get patch", noStateful},
	{"system:controller:statefulset-controller", "pods", "create delete patch", noStateful},
	{"system:controller:statefulset-controller", "persistentvolumeclaims", "create update", noStateful},
	{"system:controller:statefulset-controller", "events", "create patch", noStateful},
	{"system:controller:horizontal-pod-autoscaler", "events", "patch", repeated},
	{"system:controller:job-controller", "batch/jobs", "get", noJobs},
	{"system:controller:job-controller", "batch/jobs/status", "update", noJobs},
	{"system:controller:job-controller", "pods", "create delete patch", noJobs},
	{"system:controller:job-controller", "events", "create patch", noJobs},
	{"system:controller:cronjob-controller", "batch/cronjobs/status", "update", noJobs},
	{"system:controller:cronjob-controller", "batch/jobs", "create delete get", noJobs},
	{"system:controller:cronjob-controller", "events", "create patch", noJobs},
	{"system:controller:ttl-after-finished-controller", "batch/jobs", "delete get", noJobs},
	{"system:controller:resourcequota-controller", "resourcequotas/status", "update", noQuota},
	{"system:controller:resourcequota-controller", "*/*", "list watch", noQuota},
	{"system:controller:persistent-volume-binder", "persistentvolumeclaims", "get", "a volume is seen before its claim"},
	{"system:controller:persistent-volume-binder", "persistentvolumes", "update", "the scheduler or a provisioner reserves the volumes here; see pkg/controllers"},
	{"system:controller:pvc-protection-controller", "pods", "get", "a pod that the controller does not know uses a claim; see pkg/controllers"},
	{"system:controller:device-taint-eviction-controller", "events", "patch", repeated},
	{"system:controller:resource-claim-controller", "events", "create patch", "no template is missing; see pkg/controllers"},
	{"system:controller:resource-claim-controller", "pods", "get", "a pod is seen before its claim"},
	{"system:controller:persistent-volume-binder", "events", "patch", repeated},
	{"system:controller:ephemeral-volume-controller", "events", "create patch", noEvent},
	{"system:controller:local-path-provisioner", "nodes", "get", "a node is named that the controller does not know"},
	{"system:controller:local-path-provisioner", "persistentvolumeclaims", "patch", oneNode},
	{"system:controller:local-path-provisioner", "events", "patch", repeated},
	{"system:controller:expand-controller", "events", "patch", repeated},
	{"system:controller:disruption-controller", "*/*/scale", "get", noBudget},
	{"system:controller:disruption-controller", "policy/poddisruptionbudgets/status", "update", noBudget},
	{"system:controller:disruption-controller", "pods/status", "patch", noBudget},
	{"system:controller:disruption-controller", "events", "create patch", noBudget},
	{"system:controller:endpoint-controller", "endpoints", "delete", "a Service loses its selector"},
	{"system:controller:endpoint-controller", "events", "create patch", noEvent},
	{"system:controller:endpointslice-controller", "discovery.k8s.io/endpointslices", "delete get", "a slice is empty or one too many; " + lostAnswer},
	{"system:controller:endpointslice-controller", "events", "create patch", noEvent},
	{"system:controller:endpointslicemirroring-controller", "discovery.k8s.io/endpointslices", "create delete update", noMirror},
	{"system:controller:endpointslicemirroring-controller", "events", "create patch", noMirror},
	{"system:controller:generic-garbage-collector", "events", "create patch", noEvent},
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
	{"system:controller:storage-version-migrator-controller", "*/*", "list patch", "nothing is migrated; see pkg/controllers"},
	{"system:controller:storage-version-migrator-controller", "storagemigration.k8s.io/storageversionmigrations/status", "update", "nothing is migrated; see pkg/controllers"},
	{"system:controller:validatingadmissionpolicy-status-controller", "admissionregistration.k8s.io/validatingadmissionpolicies/status", "update", "no policy is made; see pkg/controllers"},
	{"system:controller:volumeattributesclass-protection-controller", "persistentvolumeclaims", "list", noAttributes},
	{"system:controller:volumeattributesclass-protection-controller", "persistentvolumes", "list", noAttributes},
	{"system:controller:volumeattributesclass-protection-controller", "storage.k8s.io/volumeattributesclasses", "patch", noAttributes},
	{"system:controller:legacy-service-account-token-cleaner", "secrets", "delete patch", "no token stays unused for long; see pkg/controllers"},
	{"system:controller:tokens-controller", "serviceaccounts", "get", "no token is kept in a Secret; see test/conformance"},
	{"system:controller:tokens-controller", "secrets", "delete update", "no token is kept in a Secret; see test/conformance"},
}

// otherRoles are system roles that no daemon of a cluster has.
var otherRoles = map[string]string{
	"system:aggregate-to-admin":               "a part of the role admin, for people",
	"system:aggregate-to-edit":                "a part of the role edit, for people",
	"system:aggregate-to-view":                "a part of the role view, for people",
	"system:aggregated-metrics-reader":        "a part of the role view, for people",
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

// checked reports whether a role belongs to a daemon or a controller.
func checked(role string) bool {
	_, other := otherRoles[role]
	return strings.HasPrefix(role, "system:") && !other
}

// roleLine is one line of a role in the API server's report.
type roleLine struct {
	Namespace, Role, Group, Resource, URL string
	Names, Used, Unused                   []string
}

func (l *roleLine) key() string {
	return strings.Join([]string{l.Namespace, l.Role, l.Group, l.Resource, l.URL, strings.Join(l.Names, ",")}, "|")
}

// roleWatch collects the permissions that were used.
type roleWatch struct {
	stop context.CancelFunc
	done sync.WaitGroup

	mu   sync.Mutex
	used map[string]bool // keys of lines, with a verb
	last []roleLine
}

const rolesEvery = time.Second

// watchRoles polls the report until finish is called.
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
			_ = w.look(ctx, api) // the API server may be down
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

// finish returns the permissions that no daemon has used, those that daemons lacked, and the
// exemptions that match no role.
func (w *roleWatch) finish(c *cluster) []string {
	w.stop()
	w.done.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return append(unusedRights(w.last, w.used), c.refusals()...)
}

// unusedRights compares the lines of all roles with the used keys, each a line with a verb.
func unusedRights(lines []roleLine, used map[string]bool) []string {
	var problems []string
	if len(lines) == 0 {
		problems = append(problems, "the API server never told which roles were of use")
	}
	present := map[string]bool{} // existing permissions and roles
	for _, l := range lines {
		present[l.Role] = true
		for _, verb := range slices.Concat(l.Used, l.Unused) {
			present[l.right(verb)] = true
		}
		if !checked(l.Role) {
			continue
		}
		for _, verb := range l.Unused {
			// An informer lists only if the server cannot stream a list.
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

// right formats a verb of a role: kube-system/role: get apps/deployments.
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

// refusals returns the permissions that daemons lacked, from their logs. It ignores kubelets'
// requests on behalf of a pod that was just deleted, and what tests ask as service accounts.
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
			m := refusal.FindString(line)
			ofATest := strings.Contains(m, "system:serviceaccount:") && !strings.Contains(m, "system:serviceaccount:kube-system:")
			if m != "" && !ofATest && !strings.Contains(line, "no relationship found") {
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

// wholeSuite reports whether all tests were selected.
func wholeSuite() bool {
	return flag.Lookup("test.run").Value.String() == "" && flag.Lookup("test.skip").Value.String() == ""
}
