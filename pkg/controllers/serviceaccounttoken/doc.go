// Package serviceaccounttoken fills Secrets of type kubernetes.io/service-account-token with a
// token of the service account that they name, the cluster's CA and the namespace, and deletes
// them when the account is deleted. Such tokens do not expire; clients should use a
// TokenRequest instead if they can.
package serviceaccounttoken
