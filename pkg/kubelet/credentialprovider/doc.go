// Package credentialprovider gets credentials for image registries from programs that
// the operator installs on the node.
// https://kubernetes.io/docs/tasks/administer-cluster/kubelet-credential-provider/
package credentialprovider
