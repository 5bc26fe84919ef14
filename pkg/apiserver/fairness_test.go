package apiserver_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver"
	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/authn"
	"podium/pkg/apiserver/request"
	"podium/pkg/conditions"
)

const (
	flowSchemas    = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas"
	priorityLevels = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations"
)

// withGroups lets a request name its user and groups as "user/group,group"; all are
// authenticated.
func withGroups(c *apiserver.Config) {
	c.MaxReads, c.MaxWrites, c.Authorizer = 400, 200, everybody()
	c.Authenticator = authn.Func(func(r *http.Request) (*request.User, error) {
		name, groups, _ := strings.Cut(r.Header.Get("X-User"), "/")
		if name == "" {
			name, groups = "admin", authn.Masters
		}
		return &request.User{Name: name, Groups: append(strings.Split(groups, ","), "system:authenticated")}, nil
	})
}

// A tenant whose requests take long fills the seats and queues of its level. Heartbeats
// and administrators do not wait, and another tenant waits only for its turn.
func TestFloodDoesNotDelayOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, withGroups, rule(func(ctx context.Context, a *admission.Attributes) error {
			if a.User != nil && a.User.Name == "mallory" {
				time.Sleep(time.Second)
			}
			return nil
		}))
		must[any](w, 201, "POST", leases, jsonType, `{"metadata":{"name":"a"},"spec":{"holderIdentity":"a"}}`)
		var mu sync.Mutex
		codes := map[int]int{}
		var all sync.WaitGroup
		for i := range 150 {
			all.Go(func() {
				rec := w.do("POST", cms, jsonType, configMap(fmt.Sprint("m-", i)), "X-User", "mallory")
				mu.Lock()
				defer mu.Unlock()
				codes[rec.Code]++
			})
		}
		synctest.Wait()
		if text := w.do("GET", "/debug/api_priority_and_fairness/dump_priority_levels", "", "").Body.String(); !strings.Contains(text, "global-default,") {
			t.Errorf("%s", text)
		}
		for _, tc := range []struct {
			user, method, path, media, body string
			wait                            time.Duration
		}{
			{"system:node:a/system:nodes", "PATCH", leases + "/a", mergeType, `{"spec":{"leaseTransitions":1}}`, 0},
			{"root/system:masters", "GET", cms, "", "", 0},
			{"system:kube-scheduler", "GET", cms, "", "", 0},
			{"alice", "GET", cms, "", "", time.Second},
		} {
			began := time.Now()
			rec := w.do(tc.method, tc.path, tc.media, tc.body, "X-User", tc.user)
			if took := time.Since(began); rec.Code != 200 || took > tc.wait {
				t.Errorf("%s %s %s: %d after %v", tc.user, tc.method, tc.path, rec.Code, took)
			}
		}
		all.Wait()
		if codes[201] != 100 || codes[429] != 50 { // half of the places for writes
			t.Errorf("%v", codes)
		}
	})
}

// eventually in a bubble: the server has nothing left to do.
func settled() {
	time.Sleep(15 * time.Second)
	synctest.Wait()
}

func TestFlowSchemaInEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, withGroups)
		level := must[flowcontrolv1.PriorityLevelConfiguration](w, 201, "POST", priorityLevels, jsonType,
			`{"metadata":{"name":"mine"},"spec":{"type":"Limited","limited":{"nominalConcurrencyShares":1,"limitResponse":{"type":"Reject"}}}}`)
		schema := must[flowcontrolv1.FlowSchema](w, 201, "POST", flowSchemas, jsonType,
			`{"metadata":{"name":"mine"},"spec":{"matchingPrecedence":50,"priorityLevelConfiguration":{"name":"mine"},"rules":[
			{"subjects":[{"kind":"User","user":{"name":"joe"}}],"resourceRules":[{"verbs":["list"],"apiGroups":[""],"resources":["configmaps"],"namespaces":["default"]}]}]}}`)
		uids := func(user, path string) string {
			h := w.do("GET", path, "", "", "X-User", user).Header()
			return h.Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID) + " " + h.Get(flowcontrolv1.ResponseHeaderMatchedPriorityLevelConfigurationUID)
		}
		mine := string(schema.UID) + " " + string(level.UID)
		settled()
		if got := uids("joe", cms); got != mine {
			t.Errorf("%q, want %q", got, mine)
		}
		for _, other := range [][2]string{{"ann", cms}, {"joe", cms + "/x"}, {"joe", "/api/v1/configmaps"}, {"joe", "/api/v1/namespaces/kube-system/configmaps"}, {"joe", "/version"}} {
			if got := uids(other[0], other[1]); got == mine || len(got) != len(mine) {
				t.Errorf("%v: %q", other, got)
			}
		}
		dangling := func() flowcontrolv1.FlowSchemaCondition {
			settled()
			s := must[flowcontrolv1.FlowSchema](w, 200, "GET", flowSchemas+"/mine", "", "")
			if c := conditions.Find(s.Status.Conditions, flowcontrolv1.FlowSchemaConditionDangling); c != nil {
				return *c
			}
			return flowcontrolv1.FlowSchemaCondition{}
		}
		if c := dangling(); c.Status != flowcontrolv1.ConditionFalse || c.Reason != "Found" ||
			c.Message != `This FlowSchema references the PriorityLevelConfiguration object named "mine" and it exists` {
			t.Errorf("%+v", c)
		}
		must[any](w, 200, "DELETE", priorityLevels+"/mine", "", "")
		if c := dangling(); c.Status != flowcontrolv1.ConditionTrue || c.Reason != "NotFound" ||
			c.Message != `This FlowSchema references the PriorityLevelConfiguration object named "mine" but there is no such object` {
			t.Errorf("%+v", c)
		}
		if got := uids("joe", cms); got == mine {
			t.Error("the schema without a level is in effect")
		}
	})
}

func TestDefaultObjectsAreMaintained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, withGroups)
		get := func(name string) *flowcontrolv1.PriorityLevelConfiguration {
			settled()
			return must[flowcontrolv1.PriorityLevelConfiguration](w, 200, "GET", priorityLevels+"/"+name, "", "")
		}
		shares := func(name string, n int, more string) {
			must[any](w, 200, "PATCH", priorityLevels+"/"+name, mergeType, fmt.Sprintf(`{"spec":{"limited":{"nominalConcurrencyShares":%d}}%s}`, n, more))
		}
		if l := must[flowcontrolv1.PriorityLevelConfigurationList](w, 200, "GET", priorityLevels, "", ""); len(l.Items) != 8 {
			t.Errorf("%d levels", len(l.Items))
		}
		if l := must[flowcontrolv1.FlowSchemaList](w, 200, "GET", flowSchemas, "", ""); len(l.Items) != 11 {
			t.Errorf("%d schemas", len(l.Items))
		}
		shares("workload-low", 7, "")
		if l := get("workload-low"); *l.Spec.Limited.NominalConcurrencyShares != 100 || l.Generation != 3 {
			t.Errorf("it is not the server's any more: %+v", l)
		}
		shares("workload-low", 7, `,"metadata":{"annotations":{"apf.kubernetes.io/autoupdate-spec":"false"}}`)
		if l := get("workload-low"); *l.Spec.Limited.NominalConcurrencyShares != 7 {
			t.Errorf("a user's change is undone: %+v", l)
		}
		must[any](w, 200, "PATCH", priorityLevels+"/exempt", mergeType, `{"spec":{"exempt":{"nominalConcurrencyShares":9}}}`)
		if l := get("exempt"); *l.Spec.Exempt.NominalConcurrencyShares != 9 {
			t.Errorf("the shares of exempt are a user's: %+v", l)
		}
		must[any](w, 200, "DELETE", priorityLevels+"/catch-all", "", "")
		if l := get("catch-all"); l.Annotations[flowcontrolv1.AutoUpdateAnnotationKey] != "true" {
			t.Errorf("%+v", l)
		}
		must[any](w, 201, "POST", priorityLevels, jsonType, `{"metadata":{"name":"old-default","annotations":{"apf.kubernetes.io/autoupdate-spec":"true"}},"spec":{"type":"Limited","limited":{"limitResponse":{"type":"Reject"}}}}`)
		settled()
		must[any](w, 404, "GET", priorityLevels+"/old-default", "", "")
		settled()
		before := must[metav1.List](w, 200, "GET", "/api/v1/configmaps", "", "").ResourceVersion
		for _, path := range []string{flowSchemas, priorityLevels} {
			must[any](w, 422, "PATCH", path+"/catch-all", mergeType, `{"spec":{"matchingPrecedence":9,"limited":{"nominalConcurrencyShares":6}}}`)
		}
		settled()
		for _, path := range []string{flowSchemas, priorityLevels} {
			for _, o := range must[metav1.PartialObjectMetadataList](w, 200, "GET", path, "", "").Items {
				if version(o.ResourceVersion) > version(before) {
					t.Errorf("%s was written without need", o.Name)
				}
			}
		}
	})
}

func version(text string) int {
	n, _ := strconv.Atoi(text)
	return n
}

func TestFairnessPages(t *testing.T) {
	w := start(t, withGroups)
	page := func(name string) string {
		rec := w.do("GET", "/debug/api_priority_and_fairness/"+name, "", "", "X-User", "system:kube-scheduler")
		if rec.Code != 200 {
			t.Errorf("%s: %d", name, rec.Code)
		}
		return rec.Body.String()
	}
	if text := page("dump_priority_levels"); !strings.HasPrefix(text, "PriorityLevelName, ActiveQueues, IsIdle, IsQuiescing,") || strings.Count(text, "\n") != 9 {
		t.Errorf("%s", text)
	}
	if text := page("dump_queues"); !strings.HasPrefix(text, "PriorityLevelName, Index,") || !strings.Contains(text, "workload-high,") {
		t.Errorf("%s", text)
	}
	text := page("dump_requests?includeRequestDetails=1")
	if !strings.Contains(text, "system:kube-scheduler,") || !strings.Contains(text, "/debug/api_priority_and_fairness/dump_requests,") {
		t.Errorf("%s", text)
	}
	if rec := w.do("GET", "/debug/api_priority_and_fairness/other", "", ""); rec.Code != 404 {
		t.Errorf("%d", rec.Code)
	}
}

// Lists are as wide as the number of objects that they read.
func TestWidthOfLists(t *testing.T) {
	w := start(t, withGroups)
	for i := range 250 {
		must[any](w, 201, "POST", cms, jsonType, configMap(fmt.Sprint("c-", i)))
	}
	w.do("GET", cms, "", "") // the cache has all of them then
	for path, want := range map[string]int{
		cms: 3, cms + "?limit=100": 1, cms + "?limit=100&labelSelector=a%3Db": 3, cms + "/c-1": 1, "/api/v1/pods": 1,
		cms + "?fieldSelector=metadata.name%3Dc-1": 1, cms + "?watch=true": 1, cms + "?watch=true&sendInitialEvents=true": 3,
	} {
		if got := w.server.Width(httptest.NewRequest("GET", path, nil)); got != want {
			t.Errorf("%s: %d, want %d", path, got, want)
		}
	}
}
