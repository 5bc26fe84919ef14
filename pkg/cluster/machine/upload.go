package machine

import (
	"context"
	"encoding/json"
	"os"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"podium/pkg/client"
	"podium/pkg/client/bootstraptoken"
	"podium/pkg/client/kubeconfig"
	"podium/pkg/scheme"
)

// What joining machines read: where the cluster is, which needs no credentials,
// and its settings, which need a bootstrap token.
const (
	systemNamespace = "kube-system"

	setupName    = "podium-config"
	setupKey     = "ClusterConfiguration"
	proxyAccount = "kube-proxy"
	proxySecret  = "kube-proxy-token"
)

// setup holds the cluster's settings for machines that join it.
type setup struct {
	Cluster     string `json:"clusterName"`
	Endpoint    string `json:"controlPlaneEndpoint"`
	PodCIDR     string `json:"podSubnet"`
	ServiceCIDR string `json:"serviceSubnet"`
	DNSDomain   string `json:"dnsDomain"`
	PodNetwork  string `json:"podNetwork"`
	Cloud       string `json:"cloudProvider,omitempty"`
	PodSecurity string `json:"podSecurity,omitempty"`
}

func (c *Config) setup() setup {
	return setup{c.Cluster, c.Endpoint, c.PodCIDR, c.ServiceCIDR, c.DNSDomain, c.PodNetwork, c.Cloud, c.PodSecurity}
}

// upload writes the objects to the cluster that other machines need to join it.
// It is idempotent.
func (m *machine) upload(ctx context.Context) error {
	cl, err := m.admin()
	if err != nil {
		return err
	}
	ca, err := os.ReadFile(m.at(pkiDir, "ca.crt"))
	if err != nil {
		return err
	}
	info, err := yaml.Marshal(kubeconfig.Config{
		Kind: "Config", APIVersion: "v1",
		Clusters: []kubeconfig.Named[kubeconfig.Cluster]{{Value: kubeconfig.Cluster{Server: m.server(), CertificateAuthorityData: ca}}},
	})
	if err != nil {
		return err
	}
	how, err := yaml.Marshal(m.setup())
	if err != nil {
		return err
	}
	if err := m.grant(ctx, cl); err != nil {
		return err
	}
	// The bootstrap signer writes its signatures to the same ConfigMap: patch
	// only our key.
	for _, o := range []struct{ namespace, name, key, value string }{
		{metav1.NamespacePublic, bootstraptoken.InfoName, bootstraptoken.InfoKey, string(info)},
		{systemNamespace, setupName, setupKey, string(how)},
	} {
		if err := setConfigMap(ctx, cl, o.namespace, o.name, o.key, o.value); err != nil {
			return err
		}
	}
	return nil
}

// setConfigMap sets one key of a ConfigMap, which it creates if needed.
func setConfigMap(ctx context.Context, cl *client.Client, namespace, name, key, value string) error {
	maps := client.For[*corev1.ConfigMap](cl).In(namespace)
	_, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Data: map[string]string{key: value}})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	patch, err := json.Marshal(map[string]any{"data": map[string]string{key: value}})
	if err != nil {
		return err
	}
	_, err = maps.Patch(ctx, name, types.MergePatchType, patch)
	return err
}

// grant creates the roles and bindings for machines that have no certificate
// yet, with no more rights than joining needs. The names are those of kubeadm,
// so that its tokens work as well.
func (m *machine) grant(ctx context.Context, cl *client.Client) error {
	group := func(name string) rbacv1.Subject {
		return rbacv1.Subject{Kind: "Group", APIGroup: rbacv1.GroupName, Name: name}
	}
	clusterRole := func(name string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}
	}
	tokens, nodes := group(nodeTokenGroup), group("system:nodes")
	proxy := rbacv1.Subject{Kind: "ServiceAccount", Namespace: systemNamespace, Name: proxyAccount}
	for _, b := range []struct {
		name string
		role string
		who  rbacv1.Subject
	}{
		{"kubeadm:kubelet-bootstrap", "system:node-bootstrapper", tokens},
		{"kubeadm:node-autoapprove-bootstrap", "system:certificates.k8s.io:certificatesigningrequests:nodeclient", tokens},
		{"kubeadm:node-autoapprove-certificate-rotation", "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", nodes},
		{"kubeadm:get-nodes", "kubeadm:get-nodes", tokens},
		{"kubeadm:node-proxier", "system:node-proxier", proxy},
	} {
		err := ensure(ctx, client.For[*rbacv1.ClusterRoleBinding](cl), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: b.name}, RoleRef: clusterRole(b.role), Subjects: []rbacv1.Subject{b.who},
		})
		if err != nil {
			return err
		}
	}
	err := ensure(ctx, client.For[*rbacv1.ClusterRole](cl), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "kubeadm:get-nodes"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get"}}},
	})
	if err != nil {
		return err
	}
	for _, r := range []struct {
		namespace, name, resource, object string
		who                               []rbacv1.Subject
	}{
		{metav1.NamespacePublic, "kubeadm:bootstrap-signer-clusterinfo", "configmaps", bootstraptoken.InfoName,
			[]rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: "system:anonymous"}}},
		{systemNamespace, "podium:nodes-config", "configmaps", setupName, []rbacv1.Subject{tokens, nodes}},
		{systemNamespace, "podium:kube-proxy-token", "secrets", proxySecret, []rbacv1.Subject{tokens, nodes}},
	} {
		if err := grantRead(ctx, cl, r.namespace, r.name, r.resource, r.object, r.who); err != nil {
			return err
		}
	}
	return m.proxyCredentials(ctx, cl)
}

// grantRead lets subjects get one object.
func grantRead(ctx context.Context, cl *client.Client, namespace, name, resource, object string, who []rbacv1.Subject) error {
	meta := metav1.ObjectMeta{Name: name, Namespace: namespace}
	err := ensure(ctx, client.For[*rbacv1.Role](cl).In(namespace), &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{resource}, ResourceNames: []string{object}, Verbs: []string{"get"}},
	}})
	if err != nil {
		return err
	}
	return ensure(ctx, client.For[*rbacv1.RoleBinding](cl).In(namespace), &rbacv1.RoleBinding{
		ObjectMeta: meta, Subjects: who, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
	})
}

// proxyCredentials creates the service account of kube-proxy on joined
// machines, and a token Secret that those machines may read. Deleting the
// Secret revokes the token for all of them.
func (m *machine) proxyCredentials(ctx context.Context, cl *client.Client) error {
	err := ignoreExists(client.For[*corev1.ServiceAccount](cl).In(systemNamespace).Create(ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: proxyAccount, Namespace: systemNamespace}}))
	if err != nil {
		return err
	}
	return ignoreExists(client.For[*corev1.Secret](cl).In(systemNamespace).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: proxySecret, Namespace: systemNamespace,
			Annotations: map[string]string{corev1.ServiceAccountNameKey: proxyAccount}},
		Type: corev1.SecretTypeServiceAccountToken,
	}))
}

func ignoreExists[T scheme.Object](_ T, err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// ensure creates an object, or replaces the present one with want. It sets
// want's resource version.
func ensure[T scheme.Object](ctx context.Context, objects client.Resource[T], want T) error {
	_, err := objects.Create(ctx, want)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	have, err := objects.Get(ctx, want.GetName())
	if err != nil {
		return err
	}
	want.SetResourceVersion(have.GetResourceVersion())
	_, err = objects.Update(ctx, want)
	return err
}
