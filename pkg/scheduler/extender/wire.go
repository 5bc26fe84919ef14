package extender

import (
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The bodies of requests and responses. Names and meaning are those of the package
// k8s.io/kube-scheduler/extender/v1.

// args are what filter and prioritize are asked about.
type args struct {
	Pod       *corev1.Pod
	Nodes     *corev1.NodeList
	NodeNames *[]string // instead of Nodes, for an extender that has the nodes itself
}

// filterResult answers args. Only the names of Nodes are read.
type filterResult struct {
	Nodes                      *nodeNames
	NodeNames                  *[]string
	FailedNodes                map[string]string // the reasons, by node
	FailedAndUnresolvableNodes map[string]string // preemption does not help there
	Error                      string
}

type nodeNames struct {
	Items []struct {
		Metadata struct{ Name string }
	}
}

// names returns the nodes that the extender leaves.
func (r *filterResult) names() (out []string) {
	switch {
	case r.NodeNames != nil:
		return *r.NodeNames
	case r.Nodes != nil:
		for _, n := range r.Nodes.Items {
			out = append(out, n.Metadata.Name)
		}
	}
	return out
}

// hostPriority is an element of the answer of prioritize.
type hostPriority struct {
	Host  string
	Score int64 // 0 to 10
}

// preemptionArgs have one of the two maps, by node.
type preemptionArgs struct {
	Pod                   *corev1.Pod
	NodeNameToVictims     map[string]*victims
	NodeNameToMetaVictims map[string]*metaVictims
}

type victims struct {
	Pods             []*corev1.Pod
	NumPDBViolations int64
}

type metaVictims struct {
	Pods             []*metaPod
	NumPDBViolations int64
}

type metaPod struct{ UID string }

type preemptionResult struct {
	NodeNameToMetaVictims map[string]*metaVictims
}

type bindingArgs struct {
	PodName, PodNamespace string
	PodUID                types.UID
	Node                  string
}

type bindingResult struct{ Error string }

func decodeFilter(data []byte) (*filterResult, error) {
	out := &filterResult{}
	if err := decode(data, out); err != nil {
		return nil, err
	}
	if out.Error != "" {
		return nil, errors.New(shorten(out.Error))
	}
	return out, nil
}

// decodePriorities returns the scores by node.
func decodePriorities(data []byte) (map[string]int64, error) {
	var list []hostPriority
	if err := decode(data, &list); err != nil {
		return nil, err
	}
	out := make(map[string]int64, len(list))
	for _, p := range list {
		if p.Score < -maxScore || p.Score > maxScore {
			return nil, fmt.Errorf("the score %d is out of range", p.Score)
		}
		out[p.Host] = p.Score
	}
	return out, nil
}

func decodePreemption(data []byte) (map[string]*metaVictims, error) {
	var out preemptionResult
	if err := decode(data, &out); err != nil {
		return nil, err
	}
	for node, v := range out.NodeNameToMetaVictims {
		if v == nil || len(v.Pods) == 0 {
			return nil, fmt.Errorf("expected at least one victim pod on node %q", shorten(node))
		}
		for _, p := range v.Pods {
			if p == nil {
				return nil, fmt.Errorf("a victim on node %q is null", shorten(node))
			}
		}
	}
	return out.NodeNameToMetaVictims, nil
}

// RefusedError is the answer of an extender that has not bound a pod.
type RefusedError struct{ Message string }

func (e *RefusedError) Error() string { return e.Message }

func decodeBinding(data []byte) error {
	var out bindingResult
	if err := decode(data, &out); err != nil {
		return err
	}
	if out.Error != "" {
		return &RefusedError{shorten(out.Error)}
	}
	return nil
}

func decode(data []byte, into any) error {
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("decode the response: %w", err)
	}
	return nil
}

// shorten bounds a text of an extender that goes into events and statuses.
func shorten(s string) string {
	const most = 256
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}
