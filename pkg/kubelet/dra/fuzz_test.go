package dra

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
)

func FuzzState(f *testing.F) {
	f.Add([]byte(`{"version":1,"claims":[{"uid":"u","namespace":"d","name":"c","allocated":["r d p x"],"pods":["a"],"drivers":{"d":{"called":true,"prepared":true,"devices":[{"pool":"p","name":"x","requests":["r"],"cdi":["v/c=x"]}]}}}]}`))
	f.Add([]byte(`{"version":1,"claims":[null,{"uid":"u","namespace":"d","name":"c","drivers":{"d":null}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		claims, err := parseState(data)
		if err != nil {
			return
		}
		m := &Manager{claims: claims}
		m.Pods()
		m.Prepared(pod("a", "c"))
		_, _ = m.Devices(pod("a", "c"), &pod("a", "c").Spec.Containers[0])
		for uid := range m.heldBy("a") {
			if _, err := m.leave("a", map[types.UID]bool{uid: true}); err == nil && claims[uid].Drivers["d"] != nil && claims[uid].Drivers["d"].Called {
				t.Error("an absent driver was found")
			}
		}
	})
}

func FuzzAnswers(f *testing.F) {
	f.Add("uid-a", "vendor.com/gpu=0", "request", "", 1)
	f.Add("uid-b", "x", "r/s", "no", 300)
	f.Fuzz(func(t *testing.T, uid, id, request, failure string, n int) {
		answer := &drapb.NodePrepareResourceResponse{Error: failure}
		for range max(0, min(n, 1000)) {
			answer.Devices = append(answer.Devices, &drapb.Device{CdiDeviceIds: []string{id}, RequestNames: []string{request}})
		}
		res := &drapb.NodePrepareResourcesResponse{Claims: map[string]*drapb.NodePrepareResourceResponse{uid: answer, uid + "x": nil}}
		made, err := preparedDevices([]*drapb.Claim{{Uid: "uid-a", Name: "a"}}, res)
		if err == nil {
			t.Fatal("two answers to one question are accepted")
		}
		for claim, devices := range made {
			if claim != "uid-a" || len(devices) > maxDevices {
				t.Errorf("%s: %d devices", claim, len(devices))
			}
			for _, d := range devices {
				if !validID(d.CDI[0]) {
					t.Errorf("id %q", d.CDI[0])
				}
			}
		}
	})
}
