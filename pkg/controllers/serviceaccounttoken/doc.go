// Package serviceaccounttoken fills the Secrets of type
// kubernetes.io/service-account-token with a token of the service account they
// name, the cluster's CA and the namespace, and deletes them when that account
// is no more. Such tokens do not expire; who can uses a TokenRequest instead.
package serviceaccounttoken
