package iptables

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseSave(t *testing.T) {
	got := parseSave([]byte("# comment\n*nat\n:PREROUTING ACCEPT [1:60]\n:KUBE-SVC-A - [0:0]\n" +
		"-A PREROUTING -j KUBE-SERVICES\n-A PREROUTING -m comment --comment \"-A X\" -j DOCKER\nCOMMIT\n"))
	if diff := cmp.Diff(map[string]int{"PREROUTING": 2, "KUBE-SVC-A": 0}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func FuzzParseSave(f *testing.F) {
	f.Add([]byte("*nat\n:A - [0:0]\n-A A -j B\nCOMMIT\n"))
	f.Add([]byte("-A \n:\n: \n-A"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for chain, n := range parseSave(data) {
			if n < 0 {
				t.Errorf("%q has %d rules", chain, n)
			}
		}
	})
}

func FuzzAttribute(f *testing.F) {
	f.Add([]byte{2, 0, 0, 0, 8, 0, 1, 0, 0, 0, 0, 7}, uint16(1))
	f.Add([]byte{2, 0, 0, 0, 3, 0, 1, 0}, uint16(1))
	f.Fuzz(func(t *testing.T, message []byte, kind uint16) {
		if a := attribute(message, kind); len(a) > len(message) {
			t.Error("longer than the message")
		}
	})
}
