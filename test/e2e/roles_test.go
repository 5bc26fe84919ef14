package e2e

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"podium/pkg/client"
)

// The apiserver tells which rules of which roles have ever allowed a request.
// It is asked all the time, since it forgets when it is killed, which tests do.
// When the whole suite has run, each verb of each daemon's role must have been
// of use, or stand here with the reason why it was not.

// spare is a right that this suite does not need, but a cluster does.
type spare struct{ role, resource, verbs, why string } // role and resource: regular expressions

var spares = []spare{
	{`.*`, `.*`, "list", "informers list where a server cannot stream a list"},
	{`.*`, `events`, "create patch", "what goes well, once, is told in no event, or in one that does not repeat"},
	{`system:kube-(scheduler|controller-manager)|system:node`, `tokenreviews|subjectaccessreviews`, "create", "nobody reads their pages with a token here; test/e2e/security does"},
	{`system::leader-locking-.*`, `leases`, "create get update", "this cluster has one of each, without an election"},
	{`system:kube-scheduler`, `pods`, "get", "a binding whose answer was lost"},
	{`system:node-proxier`, `leases`, "delete get", "a proxy that stops in good order, or finds a Lease of its former life"},
	{`system:node`, `nodes`, "patch", "a node that was there before, with other labels"},
	{`system:node`, `pods`, "get", "a status that was not taken"},
	{`system:node`, `pods/eviction`, "create", "no worker is upgraded here; see test/e2e/upgrade"},
	{`system:node`, `certificatesigningrequests`, "create get watch", "this kubelet came with certificates; those of test/e2e/multinode join"},
	{`system:controller:certificate-controller`, `.*`, "approve create delete sign update", "nobody joins here; see test/e2e/multinode"},
	{`system:controller:(bootstrap-signer|token-cleaner)`, `.*`, "delete update", "there are no bootstrap tokens here; see test/e2e/multinode"},
	{`system:controller:tokens-controller`, `.*`, "delete get update watch", "no token is kept in a Secret here; see test/conformance"},
	{`system:controller:clusterrole-aggregation-controller`, `clusterroles`, "escalate patch", "its one write is when the cluster is new, perhaps before the first look"},
	{`system:controller:deployment-controller`, `deployments`, "get", "it looks before it adopts"},
	{`system:controller:deployment-controller`, `replicasets`, "delete get patch", "old ones beyond the history's limit, a name that is taken, adoption"},
	{`system:controller:replicaset-controller`, `replicasets|pods`, "get patch", "adoption and release"},
	{`system:controller:endpoint(slice)?-controller`, `endpoints|endpointslices`, "delete get", "a slice that is empty or too many; a write that was not heard"},
	{`system:controller:endpointslicemirroring-controller`, `endpointslices`, "create delete update", "no Endpoints are written by hand here; see test/e2e/multinode"},
	{`system:controller:root-ca-cert-publisher`, `configmaps`, "update", "the authority stays the same"},
	{`system:controller:(cloud-node|route|service)-controller`, `.*`, "create delete patch", "this cluster is in no cloud; see test/e2e/cloud"},
	{`system:controller:node-controller`, `nodes/status|pods|pods/status`, "delete patch update", "the one node is never lost; see test/e2e/multinode"},
	{`system:controller:pod-garbage-collector`, `.*`, "delete get patch", "pods of nodes that are gone; see test/e2e/multinode"},
	{`system:controller:generic-garbage-collector`, `\*`, "get patch", "owners of other kinds, orphans"},
	{`system:controller:namespace-controller`, `namespaces/status`, "update", "a namespace that takes long"},
}

// checkedRoles are those of daemons and controllers.
var checkedRoles = regexp.MustCompile(`^system:(kube-scheduler|kube-controller-manager|node-proxier|node|controller-identities|:leader-locking-.*|controller:.*)$`)

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
	used map[string]bool // key and verb
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

// finish says which rights no daemon has used, and which it lacked.
func (w *roleWatch) finish(c *cluster) []string {
	w.stop()
	w.done.Wait()
	var problems []string
	if len(w.last) == 0 {
		problems = append(problems, "the apiserver never told which roles were of use")
	}
	for _, l := range w.last {
		if !checkedRoles.MatchString(l.Role) {
			continue
		}
		for _, verb := range l.Unused {
			if !w.used[l.key()+"|"+verb] && !isSpare(&l, verb) {
				problems = append(problems, fmt.Sprintf("role %s (%s): nobody needed to %s %s", l.Role, l.Namespace, verb, l.Resource))
			}
		}
	}
	return append(problems, c.refusals()...)
}

func isSpare(l *roleLine, verb string) bool {
	whole := func(pattern, text string) bool { return regexp.MustCompile(`^(` + pattern + `)$`).MatchString(text) }
	return slices.ContainsFunc(spares, func(s spare) bool {
		return slices.Contains(strings.Fields(s.verbs), verb) && whole(s.role, l.Role) && whole(s.resource, l.Resource)
	})
}

var refusal = regexp.MustCompile(`User \\*"system:[^"]*\\*" cannot [^:]*`)

// refusals are the rights that daemons lacked, as their logs have it. Where a
// kubelet asked on behalf of a pod that was just gone, it lacked none.
func (c *cluster) refusals() []string {
	files, err := filepath.Glob(filepath.Join(c.dir, "logs", "*.log"))
	if err != nil {
		return []string{err.Error()}
	}
	found := map[string]bool{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return []string{err.Error()}
		}
		for _, line := range strings.Split(string(data), "\n") {
			if m := refusal.FindString(line); m != "" && !strings.Contains(line, "no relationship found") {
				found[filepath.Base(file)+": "+m] = true
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
