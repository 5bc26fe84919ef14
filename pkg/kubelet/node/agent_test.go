package node

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client/clienttest"
)

// A response from before the node was deleted must not make the agent believe that
// the node is registered.
func TestANodeDeletedUnderAWriteIsRegisteredAgain(t *testing.T) {
	a := New(Config{Name: "n", Client: clienttest.New().Client(t)})
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	a.Observe(n)
	_, gone := a.present()
	a.take(n, gone)
	if a.Node() == nil {
		t.Fatal("an answer in time is not taken")
	}
	a.Observe(nil)
	a.take(n, gone)
	if a.Node() != nil {
		t.Error("the deleted node is taken for present")
	}
	_, gone = a.present()
	if a.take(n, gone); a.Node() == nil {
		t.Error("the node that is registered again is not taken")
	}
}
