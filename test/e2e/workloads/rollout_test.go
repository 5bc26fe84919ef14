package workloads

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const quota = `
apiVersion: v1
kind: ResourceQuota
metadata: {name: pods}
spec: {hard: {pods: "115"}}
`

// A rollout of 100 pods with a budget, an autoscaler and a quota at once, under load, while the
// controller manager and the scheduler are killed every 5 s: no request is lost, and there are
// never more pods than the replicas and the surge, nor than the quota.
func TestARolloutOf100PodsUnderKills(t *testing.T) {
	s := the.Space(t)
	const most, surge, unavailable = 100, 10, 5
	s.Apply(quota + "---" + web(80, fmt.Sprint(surge), fmt.Sprint(unavailable), "maxUnavailable: 10%"))
	s.RolledOut("web", 5*time.Minute)
	keep(t, s.Pods, "app=web", func(pods map[types.UID]*corev1.Pod) error {
		if n := count(pods, active); n > most+surge {
			return fmt.Errorf("there are %d active pods, at most %d and a surge of %d are allowed", n, most, surge)
		}
		if n := count(pods, unfinished); n > 115 {
			return fmt.Errorf("there are %d pods, and the quota is 115", n)
		}
		if n := count(pods, healthy); n < 80-unavailable {
			return fmt.Errorf("%d pods are ready, at least %d of 80 must be", n, 80-unavailable)
		}
		return nil
	})
	l := startLoad(s, "web", 1)
	k := startKills(t, 5*time.Second, []victim{{plane, "kube-controller-manager"}, {plane, "kube-scheduler"}})
	s.Apply(scaler(most, most, 500))
	s.Podium(t, "rollout", "restart", "-n", s.Namespace, "deployment/web")
	scaled(s, most, "the autoscaler's minimum")
	s.RolledOut("web", 10*time.Minute)
	k.stop()
	l.lostNone(t)
}
