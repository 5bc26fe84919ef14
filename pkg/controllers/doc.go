// Package controllers is kube-controller-manager: the controllers that make
// the cluster's state what the API says it should be. controllers.go lists
// them; each has a folder of its own and shares the loop (package loop) and the
// informers (package views) with the others.
package controllers
