package tainteviction

import (
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// forever is the result of stay for a pod that tolerates all taints.
const forever = time.Duration(math.MaxInt64)

// stay returns how long from now the pod may stay on a node with these NoExecute taints; 0 or
// less means that it is to be evicted now. since returns when a taint was added.
func stay(taints []corev1.Taint, tolerations []corev1.Toleration, since func(corev1.Taint) time.Time, now time.Time) time.Duration {
	left := forever
	for _, t := range taints {
		limit, tolerated := tolerates(t, tolerations)
		switch {
		case !tolerated:
			return 0
		case limit != forever:
			left = min(left, since(t).Add(limit).Sub(now))
		}
	}
	return left
}

// tolerates returns the shortest toleration of a taint; ok is false if there is none.
func tolerates(t corev1.Taint, tolerations []corev1.Toleration) (limit time.Duration, ok bool) {
	limit = forever
	for _, tol := range tolerations {
		if !matches(tol, t) {
			continue
		}
		ok = true
		if tol.TolerationSeconds != nil {
			limit = min(limit, time.Duration(max(0, *tol.TolerationSeconds))*time.Second)
		}
	}
	return limit, ok
}

func matches(tol corev1.Toleration, t corev1.Taint) bool {
	if tol.Effect != "" && tol.Effect != t.Effect || tol.Key != "" && tol.Key != t.Key {
		return false
	}
	switch tol.Operator {
	case corev1.TolerationOpExists:
		return true
	case "", corev1.TolerationOpEqual:
		return tol.Key != "" && tol.Value == t.Value
	}
	return false
}

func noExecute(n *corev1.Node) []corev1.Taint {
	var out []corev1.Taint
	for _, t := range n.Spec.Taints {
		if t.Effect == corev1.TaintEffectNoExecute {
			out = append(out, t)
		}
	}
	return out
}
