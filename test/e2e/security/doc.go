// Package security attacks a cluster: with stolen certificates and tokens, as
// the administrator of one namespace, and without credentials. It attacks the
// cluster of KUBECONFIG and finds the CA's key beside it:
//
//	hack/with-cluster go test -count=1 ./test/e2e/security
//
// The flag -abuse sets the duration of TestResourceAbuse; make soak runs it longer.
// The table lists the classes of attacks. "Same" means that Podium behaves as
// upstream's documentation and code; the tests do not run upstream itself. A test with
// the name of a package before it is in that package.
//
//	class                             test                                      upstream                                   ours
//
//	Work and memory
//	YAML aliases, merge keys          TestYAMLAliasExpansion                    aliases are expanded within a budget       413 above 1 MB of expanded text
//	bodies that decode to much        TestConcurrentBombs                       bounded by the body's size                 one memory budget for all requests
//	quadratic patches                 TestQuadraticPatch                        bounded by the object's size               413 above a bound on the merge's work
//	objects too large to store        TestApplyTooLarge                         413 from etcd, after the merge             413 before the merge
//	bodies that never arrive          TestStalledBodies                         the request timeout                        same; no seat is held meanwhile
//	answers that are never read       TestUnreadAnswers                         the connection's flow control              cut off; no seat is held meanwhile
//	watches without number            TestWatchFlood                            counted as seats while they start          429 above a number for each user
//	events and objects                TestEventFlood                            EventRateLimit is off                      EventRateLimit is on; bytes per user bounded
//	metric series                     TestMetricSeriesFlood                     labels of known requests only              same
//	audit records of strangers        TestAuditFloodByStrangers                 all are recorded                           bounded, the rest is counted
//	audit events that do not fit      audit.TestLossesAreReported               dropped and counted                        same, and an event says how many
//	all of it at once                 TestResourceAbuse                         API priority and fairness                  same, and a number of requests for each user
//	floods of HTTP/2                  TestFloodsOfHTTP2                         closed or bounded                          same
//	fork bombs                        TestForkBomb                              no bound by default                        bounded for each pod and for all pods
//	full disks                        TestEphemeralStorageLimit                 evicted                                    same
//
//	Authorization
//	resourceNames                     TestResourceNamesBypass                   400 for another name's selector            same; unknown methods are 405
//	create by update or apply         TestCreateWithoutCreate                   needs the verb create                      same
//	open watches and streams          TestOpenWatchIsReauthorized               authorized once                            authenticated and authorized every 10 s
//	escalation                        TestEscalation                            403                                        same
//	                                  TestANamespaceAdministratorDoesNotEscalate
//	impersonation                     TestImpersonation                         each user, group and extra needs a right   same
//	                                  TestImpersonationNeedsTheRight
//	                                  TestHeadersThatAreNotBelieved
//	path spellings                    TestPathSpellings                         one reading of a path                      same
//	exec by GET                       TestExecByGet                             needs create                               same
//	Tables and metadata               TestTablesNeedTheSameRight                same right as the objects                  same
//	continue tokens                   TestForgedContinueTokens                  400, or within the path's own prefix       same
//	anonymous access                  TestAnonymousLearnsNothing                health and version only                    same
//	                                  TestHealthNeedsNoCertificate
//
//	Identities
//	forged and stale tokens           TestForgedTokens                          401                                        same
//	bound tokens                      TestATokenDoesNotOutliveItsPod            invalid when account or pod are gone       same
//	                                  TestTokenOfRecreatedAccount
//	audiences                         TestATokenOfAnotherAudience               401                                        same
//	                                  TestNodeTokenAudience                     those of the node's pods                   same
//	lifetimes                         TestTokenLifetime                         no bound by default                        8760 hours
//	tokens in Secrets                 TestLegacySecretToken                     valid while the Secret holds them          same
//	names by the front proxy          TestOnlyTheFrontProxyNamesUsers           its certificate and allowed names          same
//	bad client certificates           TestBadClientCertificates                 401                                        handshake refused, or 401
//	revoked certificates              TestRevokedCertificateIsRefusedEverywhere there is no revocation                     401 at every daemon within seconds
//	the API server's certificate      TestTheAPIServersCertificateIsNoClients   a server's only                            same
//	serving certificates of others    TestServingCertificateOfOthersIsNotApproved no automatic approval                    refused; kubelets have a CA of their own
//	bootstrap tokens                  TestABootstrapTokenIsNoLiveNode           any node's client certificate              not of a node that is alive
//	certificate requests              TestCertificateRequestsThatAreNotGranted  refused or left to people                  same
//
//	Nodes and pods
//	NodeRestriction                   TestNodeRestriction                       403                                        same
//	                                  TestAStolenKubeletCertificate
//	Pod Security                      TestPodSecurityStandards                  403; warnings for templates                same
//	                                  TestPodSecurityOfUpdates
//	Secrets of other accounts         TestMountableSecrets                      403                                        same
//	cached private images             e2e.TestPrivateRegistry                   credentials are checked for each pod       same
//	external IPs of Services          TestServiceExternalIPs                    DenyServiceExternalIPs is off              it is on; ranges can be allowed
//	raw sockets                       TestRawSocketsAreRefused                  NET_RAW by default                         dropped by default; ICMP sockets work
//	forged source addresses           TestPodSendsFromItsOwnAddressOnly         the network add-on's                       dropped
//	cloud metadata                    TestMetadataAddressIsClosedToPods         open                                       closed to pods by default
//	user namespaces                   TestUserNamespaces                        the sandbox is retried without support     the pod is refused without support
//	the kubelet's port                TestKubeletPort, TestDaemonPorts          403 without rights                         401 or 403 on every path
//	listeners                         TestListeners                             by configuration                           6443, 10250 and 10256 only
//	paths in specs                    TestPathsInSpecs                          422                                        same
//	links of containers               TestLinksOfContainers                     stay in the volume                         same
//	log pages                         TestLogPages                              nothing outside of /var/log                same; off by default
//	hostile archives                  TestCopyFromAHostileContainer             names that lead outside are skipped        same
//	loopback (CVE-2020-8558)          TestLoopbackFromANeighbour                dropped                                    same
//	                                  TestLoopbackFromAPod
//
//	The wire and the disk
//	request smuggling                 TestSmuggledRequests                      400, or the chunks count                   same
//	forbidden headers of HTTP/2       TestForbiddenHeadersOfHTTP2               reset, or 400                              same
//	TLS                               TestTLSVersionsAndSuites                  1.2 and 1.3; CBC suites by default         1.2 with AEAD only, and 1.3
//	                                  TestTLSRenegotiation                      refused                                    same
//	encryption at rest                TestSecretsAtRest                         off by default                             on by default
//	file modes                        TestFileModes                             keys 0600                                  same
package security
