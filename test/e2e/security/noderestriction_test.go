package security

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
)

// neighbour is a node that exists only in the API.
const neighbour = "node-c"

// mirrorPod returns a mirror pod of node A, with additional fields in its metadata and spec.
func mirrorPod(uid, metadata, spec string) string {
	return fmt.Sprintf(`{"metadata":{"name":"static","annotations":{"kubernetes.io/config.mirror":"x"},"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"node-a","uid":%q,"controller":true}]%s},`+
		`"spec":{"nodeName":"node-a","terminationGracePeriodSeconds":0,"automountServiceAccountToken":false,"containers":[{"name":"c","image":"i"}]%s}}`, uid, metadata, spec)
}

// nodeAttempt is a request that a kubelet's certificate must not be allowed. The body
// "impersonate" stands for the header of that name.
type nodeAttempt struct{ method, path, body string }

const (
	nodes    = "/api/v1/nodes"
	leases   = "/apis/coordination.k8s.io/v1/namespaces/"
	accounts = "/api/v1/namespaces/"
)

// attemptsOnNodes are attempts on nodes and leases
func attemptsOnNodes(ns string) map[string]nodeAttempt {
	return map[string]nodeAttempt{
		"its node's taints":                   {"PATCH", nodes + "/node-a", `{"spec":{"taints":[{"key":"x","effect":"NoSchedule"}]}}`},
		"its node's role":                     {"PATCH", nodes + "/node-a", `{"metadata":{"labels":{"node-role.kubernetes.io/infra":""}}}`},
		"a label kept from nodes":             {"PATCH", nodes + "/node-a", `{"metadata":{"labels":{"node-restriction.kubernetes.io/x":"y"}}}`},
		"a label below one kept from nodes":   {"PATCH", nodes + "/node-a", `{"metadata":{"labels":{"a.node-restriction.kubernetes.io/x":"y"}}}`},
		"an unknown label of kubernetes.io":   {"PATCH", nodes + "/node-a", `{"metadata":{"labels":{"kubernetes.io/x":"y"}}}`},
		"an unknown label of k8s.io":          {"PATCH", nodes + "/node-a", `{"metadata":{"labels":{"x.k8s.io/x":"y"}}}`},
		"a label by way of its status":        {"PATCH", nodes + "/node-a/status", `{"metadata":{"labels":{"node-restriction.kubernetes.io/x":"y"}}}`},
		"its node's owner":                    {"PATCH", nodes + "/node-a", `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"x","uid":"x"}]}}`},
		"another node":                        {"PATCH", nodes + "/" + neighbour, `{"metadata":{"labels":{"a":"b"}}}`},
		"another node's status":               {"PATCH", nodes + "/" + neighbour + "/status", `{"status":{"phase":"Terminated"}}`},
		"another node, whole":                 {"PUT", nodes + "/" + neighbour, `{"metadata":{"name":"` + neighbour + `"}}`},
		"delete another node":                 {"DELETE", nodes + "/" + neighbour, ""},
		"delete all nodes":                    {"DELETE", nodes, ""},
		"make another node":                   {"POST", nodes, `{"metadata":{"name":"node-x"}}`},
		"make another node by generated name": {"POST", nodes, `{"metadata":{"generateName":"node-"}}`},
		"another node's lease":                {"PATCH", leases + "kube-node-lease/leases/" + neighbour, `{"spec":{"holderIdentity":"node-a"}}`},
		"make another node's lease":           {"POST", leases + "kube-node-lease/leases", `{"metadata":{"name":"node-x"}}`},
		"its lease elsewhere":                 {"POST", leases + ns + "/leases", `{"metadata":{"name":"node-a"}}`},
		"the scheduler's lease":               {"POST", leases + "kube-system/leases", `{"metadata":{"name":"kube-scheduler"}}`},
		"the controller manager's lease":      {"PUT", leases + "kube-system/leases/kube-controller-manager", `{"metadata":{"name":"kube-controller-manager"}}`},
		"all leases":                          {"DELETE", leases + "kube-node-lease/leases", ""},
	}
}

// attemptsOnPods are attempts on pods: mirror pods of the node with this uid, the pod "mine"
// of its node and the pod "theirs" of another
func attemptsOnPods(pods, uid string) map[string]nodeAttempt {
	return map[string]nodeAttempt{
		"an ordinary pod":                      {"POST", pods, `{"metadata":{"name":"made"},"spec":{"nodeName":"node-a","containers":[{"name":"c","image":"i"}]}}`},
		"a mirror pod of another node":         {"POST", pods, strings.Replace(mirrorPod(uid, "", ""), `"nodeName":"node-a"`, `"nodeName":"`+neighbour+`"`, 1)},
		"a mirror pod on no node":              {"POST", pods, strings.Replace(mirrorPod(uid, "", ""), `"nodeName":"node-a",`, ``, 1)},
		"a mirror pod that another owns":       {"POST", pods, strings.Replace(mirrorPod(uid, "", ""), `"name":"node-a"`, `"name":"`+neighbour+`"`, 1)},
		"a mirror pod of an earlier node":      {"POST", pods, mirrorPod("00000000-0000-4000-8000-000000000000", "", "")},
		"a mirror pod with an account":         {"POST", pods, mirrorPod(uid, "", `,"serviceAccountName":"default"`)},
		"a mirror pod with a secret":           {"POST", pods, mirrorPod(uid, "", `,"volumes":[{"name":"v","secret":{"secretName":"x"}}]`)},
		"a mirror pod with a projected secret": {"POST", pods, mirrorPod(uid, "", `,"volumes":[{"name":"v","projected":{"sources":[{"secret":{"name":"x"}}]}}]`)},
		"a mirror pod with a token":            {"POST", pods, mirrorPod(uid, "", `,"volumes":[{"name":"v","projected":{"sources":[{"serviceAccountToken":{"path":"t"}}]}}]`)},
		"a mirror pod with a ConfigMap":        {"POST", pods, mirrorPod(uid, "", `,"volumes":[{"name":"v","configMap":{"name":"x"}}]`)},
		"a mirror pod with a pull secret":      {"POST", pods, mirrorPod(uid, "", `,"imagePullSecrets":[{"name":"x"}]`)},
		"a mirror pod with a secret variable":  {"POST", pods, mirrorPod(uid, "", `,"initContainers":[{"name":"i","image":"i","env":[{"name":"A","valueFrom":{"secretKeyRef":{"name":"x","key":"k"}}}]}]`)},
		"a mirror pod with secret variables":   {"POST", pods, mirrorPod(uid, "", `,"initContainers":[{"name":"i","image":"i","envFrom":[{"secretRef":{"name":"x"}}]}]`)},
		"a mirror pod with a resource claim":   {"POST", pods, mirrorPod(uid, "", `,"resourceClaims":[{"name":"x","resourceClaimName":"x"}]`)},
		"a mirror pod with a target's secret":  {"POST", pods, mirrorPod(uid, "", `,"volumes":[{"name":"v","iscsi":{"targetPortal":"192.0.2.1","iqn":"iqn.2001-04.com.example:x","lun":0,"chapAuthSession":true,"secretRef":{"name":"x"}}}]`)},
		"a mirror pod with a claim":            {"POST", pods, mirrorPod(uid, "", `,"volumes":[{"name":"v","persistentVolumeClaim":{"claimName":"x"}}]`)},
		"change its pod":                       {"PATCH", pods + "/mine", `{"metadata":{"labels":{"app":"bank"}}}`},
		"change its pod's image":               {"PATCH", pods + "/mine", `{"spec":{"containers":[{"name":"c","image":"evil"}]}}`},
		"labels by way of its pod's status":    {"PATCH", pods + "/mine/status", `{"metadata":{"labels":{"app":"bank"}}}`},
		"the status of another's pod":          {"PATCH", pods + "/theirs/status", `{"status":{"podIP":"10.0.0.1"}}`},
		"the status of another's pod, whole":   {"PUT", pods + "/theirs/status", `{"metadata":{"name":"theirs"}}`},
		"delete another's pod":                 {"DELETE", pods + "/theirs", `{"gracePeriodSeconds":0}`},
		"delete all pods":                      {"DELETE", pods, ""},
		"evict another's pod":                  {"POST", pods + "/theirs/eviction", `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"theirs"}}`},
		"bind a pod":                           {"POST", pods + "/theirs/binding", `{"target":{"kind":"Node","name":"node-a"}}`},
		"run a command in its pod":             {"POST", pods + "/mine/exec?command=id&stdout=1", ""},
		"add a container to its pod":           {"PATCH", pods + "/mine/ephemeralcontainers", `{"spec":{"ephemeralContainers":[{"name":"e","image":"i"}]}}`},
		"resize its pod":                       {"PATCH", pods + "/mine/resize", `{"spec":{"containers":[{"name":"c","resources":{"limits":{"cpu":"9"}}}]}}`},
		"read another's pod's log":             {"GET", pods + "/theirs/log", ""},
	}
}

// attemptsOnOthers are attempts on tokens and on what no kubelet needs. theirs is the uid of a
// pod of another node
func attemptsOnOthers(ns, theirs string) map[string]nodeAttempt {
	return map[string]nodeAttempt{
		"a token of an account for another pod":   {"POST", accounts + ns + "/serviceaccounts/default/token", tokenFor("theirs", theirs)},
		"a token for a pod that was there before": {"POST", accounts + ns + "/serviceaccounts/default/token", tokenFor("mine", theirs)},
		"a token for no pod":                      {"POST", accounts + ns + "/serviceaccounts/default/token", `{}`},
		"a token for a secret":                    {"POST", accounts + ns + "/serviceaccounts/default/token", `{"spec":{"boundObjectRef":{"kind":"Secret","apiVersion":"v1","name":"x","uid":"x"}}}`},
		"a token of another account":              {"POST", accounts + "kube-system/serviceaccounts/generic-garbage-collector/token", tokenFor("mine", "x")},
		"make a secret":                           {"POST", accounts + ns + "/secrets", `{"metadata":{"name":"made"}}`},
		"change a ConfigMap":                      {"PATCH", accounts + ns + "/configmaps/kube-root-ca.crt", `{"data":{"ca.crt":"evil"}}`},
		"watch secrets":                           {"GET", accounts + ns + "/secrets?watch=1&timeoutSeconds=1", ""},
		"list ConfigMaps":                         {"GET", accounts + "kube-system/configmaps", ""},
		"a secret by a field":                     {"GET", accounts + ns + "/secrets?fieldSelector=metadata.name%3Dabsent", ""},
		"change a Service":                        {"POST", accounts + ns + "/services", `{"metadata":{"name":"made"},"spec":{"ports":[{"port":1}]}}`},
		"change endpoints":                        {"PATCH", accounts + "default/endpoints/kubernetes", `{"subsets":[]}`},
		"give itself a role":                      {"POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", `{"metadata":{"name":"x"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"view"}}`},
		"be another":                              {"GET", accounts + ns + "/secrets", "impersonate"},
		"use another node's kubelet":              {"GET", nodes + "/" + neighbour + "/proxy/pods", ""},
		"use its kubelet":                         {"GET", nodes + "/node-a/proxy/pods", ""},
	}
}

// tokenFor returns a request for a token that is bound to a pod.
func tokenFor(pod, uid string) string {
	return `{"spec":{"boundObjectRef":{"kind":"Pod","apiVersion":"v1","name":"` + pod + `","uid":"` + uid + `"}}}`
}

// A kubelet's certificate can write only its own node, its own lease and the pods that are bound
// to its node, and of these only what a kubelet reports. (TestAStolenKubeletCertificate tests
// reads.)
func TestNodeRestriction(t *testing.T) {
	t.Parallel()
	ns, root := space(t), administrator(t)
	root.must(t, "POST", "/api/v1/nodes", `{"metadata":{"name":"`+neighbour+`"}}`)
	t.Cleanup(func() {
		_ = client.For[*corev1.Node](admin).Delete(t.Context(), neighbour, metav1.DeleteOptions{})
	})
	root.must(t, "POST", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", `{"metadata":{"name":"`+neighbour+`"},"spec":{"holderIdentity":"`+neighbour+`"}}`)
	pods := "/api/v1/namespaces/" + ns + "/pods"
	for name, node := range map[string]string{"mine": "node-a", "theirs": neighbour} {
		body, err := json.Marshal(pod(node, name, "absent"))
		check(t, err)
		root.must(t, "POST", pods, string(body))
	}
	var node corev1.Node
	check(t, json.Unmarshal([]byte(root.must(t, "GET", "/api/v1/nodes/node-a", "").body), &node))
	uid := string(node.UID)
	var theirs corev1.Pod
	check(t, json.Unmarshal([]byte(root.must(t, "GET", pods+"/theirs", "").body), &theirs))
	kubelet := certified(t, stolen(t, "kubelet"))
	attempts := attemptsOnNodes(ns)
	maps.Copy(attempts, attemptsOnPods(pods, uid))
	maps.Copy(attempts, attemptsOnOthers(ns, string(theirs.UID)))
	try := func(rights string) {
		for what, row := range attempts {
			header := []string{"Content-Type", jsonType}
			if row.method == "PATCH" {
				header[1] = mergeType
			}
			if row.body == "impersonate" {
				row.body, header = "", []string{"Impersonate-User", "kubernetes-admin"}
			}
			a := kubelet.do(t, row.method, row.path, row.body, header...)
			if a.code != http.StatusForbidden && a.code != http.StatusMethodNotAllowed {
				t.Errorf("%s, %s: %d, want 403: %.300s", what, rights, a.code, a.body)
			}
		}
	}
	try("with a kubelet's rights")
	// A role that grants a node more than kubelets need does not lift NodeRestriction.
	grantTo(t, ns, rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "system:node:node-a"},
		permit("create delete patch update", "pods pods/status pods/binding pods/ephemeralcontainers pods/exec pods/eviction"))
	try("with a wide role")
	// What a kubelet needs is allowed: the refusals above are specific.
	kubelet.must(t, "PATCH", nodes+"/node-a", `{"metadata":{"labels":{"example.com/held":"yes"}}}`, "Content-Type", mergeType)
	kubelet.must(t, "PATCH", nodes+"/node-a", `{"metadata":{"labels":{"example.com/held":null}}}`, "Content-Type", mergeType)
	kubelet.must(t, "POST", pods, mirrorPod(uid, "", ""))
	if a := kubelet.do(t, "DELETE", pods+"/static", `{"gracePeriodSeconds":0}`, "Content-Type", jsonType); a.code != http.StatusOK && a.code != http.StatusNotFound {
		t.Errorf("delete its mirror pod: %d: %.300s", a.code, a.body) // gone already: the node's own kubelet deletes a mirror without a static pod
	}
	// An owner reference in a status update is dropped, as by upstream.
	kubelet.must(t, "PATCH", pods+"/mine/status", `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"node-a","uid":"`+uid+`"}]}}`, "Content-Type", mergeType)
	for _, name := range []string{"mine", "theirs"} {
		var p corev1.Pod
		check(t, json.Unmarshal([]byte(root.must(t, "GET", pods+"/"+name, "").body), &p))
		if len(p.OwnerReferences) > 0 || len(p.Labels) > 0 || p.DeletionTimestamp != nil || name == "theirs" && p.Status.PodIP != "" {
			t.Errorf("the pod %q has changed: %+v", name, p)
		}
	}
	root.must(t, "DELETE", leases+"kube-node-lease/leases/"+neighbour, "")
}
