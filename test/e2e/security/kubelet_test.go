package security

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client"
)

// otherNode is a node that exists only in the API.
const otherNode = "node-b"

// pod returns a pod that is bound to a node and uses a secret.
func pod(node, name, secret string) *corev1.Pod {
	grace, no := int64(0), false
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			NodeName: node, TerminationGracePeriodSeconds: &grace, AutomountServiceAccountToken: &no,
			Containers: []corev1.Container{{Name: "c", Image: "localhost/podium/busybox:v1", Command: []string{"sleep", "3600"}}},
			Volumes:    []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secret}}}},
		},
	}
}

// The stolen certificate of node A's kubelet allows what that kubelet may do: read what its own
// pods refer to, and nothing of other nodes. It cannot be used to gain more.
func TestAStolenKubeletCertificate(t *testing.T) {
	ns, ctx := space(t), t.Context()
	nodes := client.For[*corev1.Node](admin)
	_, err := nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: otherNode}})
	check(t, err)
	t.Cleanup(func() { nodes.Delete(t.Context(), otherNode, metav1.DeleteOptions{}) })
	pods, secrets := client.For[*corev1.Pod](admin).In(ns), client.For[*corev1.Secret](admin).In(ns)
	for _, name := range []string{"of-a", "of-b", "of-nobody"} {
		_, err := secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{"key": name}})
		check(t, err)
	}
	for _, p := range []*corev1.Pod{pod("node-a", "a", "of-a"), pod(otherNode, "b", "of-b")} {
		_, err := pods.Create(ctx, p)
		check(t, err)
	}
	thief := withCertificate(t, "kubelet")
	stolenPods, stolenSecrets, stolenNodes := client.For[*corev1.Pod](thief).In(ns), client.For[*corev1.Secret](thief).In(ns), client.For[*corev1.Node](thief)

	eventually(t, "its own pod's secret is read", func() error {
		_, err := stolenSecrets.Get(ctx, "of-a")
		return err
	})
	_, err = stolenSecrets.Get(ctx, "of-b")
	forbidden(t, "read the secret of another node's pod", err)
	_, err = stolenSecrets.Get(ctx, "of-nobody")
	forbidden(t, "read a secret that no pod refers to", err)
	_, err = stolenSecrets.List(ctx, metav1.ListOptions{})
	forbidden(t, "list secrets", err)
	_, err = client.For[*corev1.Secret](thief).In("kube-system").List(ctx, metav1.ListOptions{})
	forbidden(t, "list the system's secrets", err)

	forbidden(t, "delete another node's pod", stolenPods.Delete(ctx, "b", metav1.DeleteOptions{}))
	status := []byte(`{"status":{"phase":"Failed"}}`)
	_, err = stolenPods.Patch(ctx, "b", types.StrategicMergePatchType, status, "status")
	forbidden(t, "change the status of another node's pod", err)
	_, err = stolenPods.Create(ctx, pod("node-a", "made", "of-b"))
	forbidden(t, "make a pod that reads another's secret", err)
	_, err = stolenNodes.Patch(ctx, otherNode, types.StrategicMergePatchType, []byte(`{"status":{"nodeInfo":{"machineID":"x"}}}`), "status")
	forbidden(t, "change another node's status", err)
	_, err = stolenNodes.Patch(ctx, "node-a", types.MergePatchType, []byte(`{"metadata":{"labels":{"node-restriction.kubernetes.io/trusted":"yes"}}}`))
	forbidden(t, "give its node a label that others trust", err)
	forbidden(t, "delete another node", stolenNodes.Delete(ctx, otherNode, metav1.DeleteOptions{}))
	request := &authenticationv1.TokenRequest{}
	forbidden(t, "get a token of an account that none of its pods has",
		client.For[*corev1.ServiceAccount](thief).In("kube-system").Post(ctx, "default", "token", request, &authenticationv1.TokenRequest{}))
	_, err = client.For[*rbacv1.ClusterRoleBinding](thief).Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "thief"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: "system:node:node-a"}},
	})
	forbidden(t, "make itself administrator", err)
}

func csr(t *testing.T, signer string, subject pkix.Name, usages ...certificatesv1.KeyUsage) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject}, key)
	check(t, err)
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "abuse-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), SignerName: signer, Usages: usages,
		},
	}
}

// Certificate requests that would escalate privileges are not signed.
func TestCertificateRequestsThatAreNotGranted(t *testing.T) {
	thief, ctx := withCertificate(t, "kubelet"), t.Context()
	masters := pkix.Name{CommonName: "system:node:node-a", Organization: []string{"system:masters"}}
	usages := []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}
	_, err := client.For[*certificatesv1.CertificateSigningRequest](thief).Create(ctx, csr(t, certificatesv1.KubeAPIServerClientSignerName, masters, usages...))
	forbidden(t, "ask to be of system:masters", err)
	_, err = client.For[*certificatesv1.CertificateSigningRequest](admin).Create(ctx, csr(t, certificatesv1.KubeAPIServerClientSignerName, masters, usages...))
	forbidden(t, "ask to be of system:masters, as one who is", err)

	granted := csr(t, certificatesv1.KubeAPIServerClientKubeletSignerName, pkix.Name{CommonName: "system:node:node-a", Organization: []string{"system:nodes"}}, usages...)
	mine, err := client.For[*certificatesv1.CertificateSigningRequest](thief).Create(ctx, granted)
	check(t, err)
	var refused []*certificatesv1.CertificateSigningRequest
	for what, request := range map[string]*certificatesv1.CertificateSigningRequest{
		"another node's name":             csr(t, certificatesv1.KubeAPIServerClientKubeletSignerName, pkix.Name{CommonName: "system:node:" + otherNode, Organization: []string{"system:nodes"}}, usages...),
		"a group beside that of nodes":    csr(t, certificatesv1.KubeAPIServerClientKubeletSignerName, pkix.Name{CommonName: "system:node:node-a", Organization: []string{"system:nodes", "admins"}}, usages...),
		"another user":                    csr(t, certificatesv1.KubeAPIServerClientSignerName, pkix.Name{CommonName: "kubernetes-admin"}, usages...),
		"a server's certificate for node": csr(t, certificatesv1.KubeletServingSignerName, pkix.Name{CommonName: "system:node:" + otherNode, Organization: []string{"system:nodes"}}, certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth),
	} {
		request.Annotations = map[string]string{"what": what}
		made, err := client.For[*certificatesv1.CertificateSigningRequest](thief).Create(ctx, request)
		check(t, err)
		refused = append(refused, made)
	}
	csrs := client.For[*certificatesv1.CertificateSigningRequest](admin)
	eventually(t, "the kubelet's own renewal is signed", func() error {
		got, err := csrs.Get(ctx, mine.Name)
		if err == nil && len(got.Status.Certificate) == 0 {
			err = errNotYet
		}
		return err
	})
	<-time.After(time.Second) // longer than the controllers took for the earlier request
	for _, r := range refused {
		got, err := csrs.Get(ctx, r.Name)
		check(t, err)
		for _, c := range got.Status.Conditions {
			if c.Type == certificatesv1.CertificateApproved {
				t.Errorf("%s: approved", r.Annotations["what"])
			}
		}
		if len(got.Status.Certificate) > 0 {
			t.Errorf("%s: signed", r.Annotations["what"])
		}
		check(t, csrs.Delete(ctx, r.Name, metav1.DeleteOptions{}))
	}
	check(t, csrs.Delete(ctx, mine.Name, metav1.DeleteOptions{}))
	err = thiefApproves(t, thief)
	forbidden(t, "approve a request", err)
}

func thiefApproves(t *testing.T, thief *client.Client) error {
	t.Helper()
	csrs := client.For[*certificatesv1.CertificateSigningRequest](admin)
	made, err := csrs.Create(t.Context(), csr(t, certificatesv1.KubeAPIServerClientSignerName, pkix.Name{CommonName: "x"}, certificatesv1.UsageClientAuth))
	check(t, err)
	t.Cleanup(func() { csrs.Delete(t.Context(), made.Name, metav1.DeleteOptions{}) })
	made.Status.Conditions = append(made.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Abuse",
	})
	_, err = client.For[*certificatesv1.CertificateSigningRequest](thief).UpdatePart(t.Context(), made, "approval")
	return err
}
