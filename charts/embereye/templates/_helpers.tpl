{{- define "embereye.name" -}}
{{- if contains "embereye" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-embereye" .Release.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{/* The name of the operator's rights. It has the release's namespace, because they are also needed outside of it, where a release of the
     same name in another namespace would take them over. */}}
{{- define "embereye.rights" -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" .Release.Name) }}
{{- fail (printf "the release's name %q: Services are named after it, which allow small letters, digits and hyphens only, and start with a letter. Choose another name, such as %s." .Release.Name (regexReplaceAll "[^a-z0-9-]+" (lower .Release.Name) "-" | trimAll "-0123456789" | default "embereye")) }}
{{- end }}
{{- $ports := dict }}
{{- range $port := list "grpcPort" "httpPort" "associationPort" }}
{{- $number := toString (int (get $.Values.hub.service $port)) }}
{{- with get $ports $number }}
{{- fail (printf "hub.service: %s and %s are both %s. Choose different ports." . $port $number) }}
{{- end }}
{{- $_ := set $ports $number $port }}
{{- end }}
{{- printf "%s-operator-%s" (include "embereye.name" .) .Release.Namespace }}
{{- end }}

{{- define "embereye.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ with .Values.image.digest }}@{{ . }}{{ end }}
{{- end }}

{{- define "embereye.hub" -}}
{{ include "embereye.name" . }}-hub.{{ .Release.Namespace }}.svc:{{ .Values.hub.service.grpcPort }}
{{- end }}

{{/* The Secret with the hub admin's token. */}}
{{- define "embereye.adminSecret" -}}
{{ .Values.hub.adminToken.existingSecret | default (printf "%s-hub-admin" (include "embereye.name" .)) }}
{{- end }}

{{/* The Secret with the private key that signs statements of watch. */}}
{{- define "embereye.statementSecret" -}}
{{ .Values.hub.statements.keySecret | default (printf "%s-hub-statements" (include "embereye.name" .)) }}
{{- end }}

{{/* The hub's names in a TLS certificate of the operator's authority. */}}
{{- define "embereye.hubNames" -}}
{{- $name := printf "%s-hub" (include "embereye.name" .) }}
{{- $service := printf "%s.%s" $name .Release.Namespace }}
{{- $own := list $name $service (printf "%s.svc" $service) (printf "%s.svc.cluster.local" $service) "localhost" "127.0.0.1" "::1" }}
{{- range .Values.hub.tls.names }}
{{- if hasSuffix "embereye.internal" . }}
{{- fail (printf "tls.names: %s ends like the names of EmberEye's processes, which no other certificate can have. Choose another name, or a certificate in tls.existingSecret." .) }}
{{- end }}
{{- end }}
{{- concat $own .Values.hub.tls.names | uniq | join "," }}
{{- end }}

{{/* The Secret with the hub's certificate for people and programs. */}}
{{- define "embereye.hubTlsSecret" -}}
{{ .Values.hub.tls.existingSecret | default (printf "%s-hub-identity" (include "embereye.name" .)) }}
{{- end }}

{{/* The key in that Secret that commands trust: its authority, or the certificate itself if it has none. */}}
{{- define "embereye.hubTrusted" -}}
{{ ternary "tls.crt" "ca.crt" (not (empty .Values.hub.tls.existingSecret)) }}
{{- end }}

{{/* The address where shards and the operator call the hub. */}}
{{- define "embereye.hubControl" -}}
{{ include "embereye.name" . }}-hub-control.{{ .Release.Namespace }}.svc:50053
{{- end }}

{{/* Two merged maps as JSON; unlike in mergeOverwrite, empty and false values in `over` count too. Arguments: base, over */}}
{{- define "embereye.merged" -}}
{{- $merged := deepCopy .base }}
{{- range $key, $value := .over }}
{{- if and (kindIs "map" $value) (kindIs "map" (get $merged $key)) }}
{{- $value = include "embereye.merged" (dict "base" (get $merged $key) "over" $value) | fromJson }}
{{- end }}
{{- $_ := set $merged $key $value }}
{{- end }}
{{- toJson $merged }}
{{- end }}

{{/* The context for rendering the hub `name` of `hubs`, as JSON: like that of a release called so. Its values are the release's,
     except those that tenants must not share. Arguments: root, name, hub */}}
{{- define "embereye.hubContext" -}}
{{- $release := printf "%s-%s" (include "embereye.name" .root) .name }}
{{- if gt (len $release) 40 }}
{{- fail (printf "hubs.%s: its name with the release's is %s, which is longer than 40 characters. Choose a shorter name." .name $release) }}
{{- end }}
{{- $unshared := dict "adminToken" (dict "existingSecret" "" "key" "token") "allowedHosts" list "basePath" "" "webhooks" list "replicas" 1
  "tls" (dict "existingSecret" "" "names" list) "database" (dict "dsnSecret" (dict "name" "" "key" "dsn"))
  "oidc" (dict "issuer" "" "clientId" "" "clientSecret" (dict "existingSecret" "") "roles" (dict "viewer" list "operator" list "admin" list))
  "nats" (dict "servers" list "stream" "" "credentials" (dict "existingSecret" "") "tls" (dict "existingSecret" ""))
  "mqtt" (dict "broker" "" "prefix" (printf "%s-%s" .root.Values.hub.mqtt.prefix .name) "credentials" (dict "existingSecret" "") "tls" (dict "existingSecret" ""))
  "actuators" (dict "config" nil) "modbus" (dict "config" nil "port" 0) "dc09" (dict "config" nil "port" 0 "keys" (dict "existingSecret" ""))
  "archive" (dict "config" nil "credentials" (dict "existingSecret" "") "claim" "" "restore" "" "restoreOnly" false)
  "notify" (dict "config" nil "secrets" (dict "existingSecret" "")) "profiles" (dict "config" nil) "selftest" (dict "config" nil)
  "statements" (dict "site" "" "keySecret" "")
  "persistence" (dict "existingClaim" "") "extraArgs" list "extraEnv" list }}
{{- $hub := include "embereye.merged" (dict "base" .root.Values.hub "over" $unshared) | fromJson }}
{{- $hub = include "embereye.merged" (dict "base" $hub "over" (.hub.hub | default dict)) | fromJson }}
{{- $values := set (deepCopy .root.Values) "hub" $hub }}
{{- dict "Values" $values "Release" (set (deepCopy .root.Release) "Name" $release) | toJson }}
{{- end }}

{{/* The declaration of `hubs` for the operator, as JSON. */}}
{{- define "embereye.hubs" -}}
{{- $hubs := list }}
{{- range $name, $hub := .Values.hubs }}
{{- $context := merge (include "embereye.hubContext" (dict "root" $ "name" $name "hub" $hub) | fromJson) (dict "Chart" $.Chart) }}
{{- $entry := dict "name" $name "address" (include "embereye.hubControl" $context) "process" (printf "%s-hub" (include "embereye.name" $context)) }}
{{- $entry = set $entry "namespaces" ($hub.namespaces | default list) }}
{{- if and $context.Values.hub.tls.enabled (not $context.Values.hub.tls.existingSecret) }}
{{- $entry = set $entry "names" (include "embereye.hubNames" $context | splitList ",") }}
{{- end }}
{{- $hubs = append $hubs $entry }}
{{- end }}
{{- toJson $hubs }}
{{- end }}

{{/* Arguments: root, component */}}
{{- define "embereye.selector" -}}
app.kubernetes.io/name: embereye
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "embereye.ownLabels" -}}
{{ include "embereye.selector" . }}
app.kubernetes.io/part-of: embereye
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end }}

{{/* The chart's labels take precedence over additional ones, because network policies select by them. Labels in `more`, which
     others select by, take precedence over both. Arguments: root, component, more */}}
{{- define "embereye.labels" -}}
{{- $own := include "embereye.ownLabels" . | fromYaml }}
{{- mergeOverwrite (dict) (.root.Values.additionalLabels | default dict) $own (.more | default dict) | toYaml }}
{{- end }}

{{/* The namespaces of the operator's fleets, as JSON under "names"; none: all. */}}
{{- define "embereye.namespaces" -}}
{{- $namespaces := .Values.operator.namespaces }}
{{- if .Values.operator.clusterWide }}
{{- if $namespaces }}{{ fail "operator.clusterWide and operator.namespaces: set only one of them" }}{{ end }}
{{- else if not $namespaces }}
{{- $namespaces = list .Release.Namespace }}
{{- end }}
{{- dict "names" $namespaces | toJson }}
{{- end }}

{{/* A CEL expression: the node ports that the fleet named by the argument declares, as pairs of a first and a last port. */}}
{{- define "embereye.nodePorts" -}}
{{- $ports := list }}
{{- range $name := list "grpc" "tcp" "tls" "http" }}{{ $ports = append $ports (printf "%s.spec.expose.?ports.?%s" $ $name) }}{{ end -}}
{{ . }}.spec.?expose.?type.orValue('') != 'NodePort' ? [] : [{{ join ", " $ports }}].filter(port, port.hasValue()).map(port, [int(port.value()), int(port.value())]) + [{{ . }}.spec.expose.?ports.?shards].filter(port, port.hasValue()).map(port, [int(port.value()), port.value() + {{ . }}.spec.shards - 1])
{{- end }}

{{/* The user number of all processes; empty: the cluster chooses it. */}}
{{- define "embereye.user" -}}
{{- $user := toString .Values.runAs }}
{{- if eq $user "auto" }}
{{- ternary "" "65532" (.Capabilities.APIVersions.Has "security.openshift.io/v1") }}
{{- else if ne $user "none" }}
{{- int64 .Values.runAs }}
{{- end }}
{{- end }}

{{/* PodSecurity "restricted", and a read-only root file system. */}}
{{- define "embereye.podSecurity" -}}
runAsNonRoot: true
{{- with include "embereye.user" . }}
runAsUser: {{ . }}
runAsGroup: {{ . }}
fsGroup: {{ . }}
{{- end }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{/* Do not wait five minutes for a lost node. The user's tolerations of the same taints take precedence. */}}
{{- define "embereye.tolerations" -}}
{{- $own := . }}
{{- range $key, $seconds := dict "node.kubernetes.io/not-ready" 30 "node.kubernetes.io/unreachable" 5 }}
{{- $said := false }}
{{- range $own }}
{{- if and (or (not .key) (eq .key $key)) (or (not .effect) (eq .effect "NoExecute")) }}{{- $said = true }}{{- end }}
{{- end }}
{{- if not $said }}
- {key: {{ $key }}, operator: Exists, effect: NoExecute, tolerationSeconds: {{ $seconds }}}
{{- end }}
{{- end }}
{{- range $own }}
- {{ toJson . }}
{{- end }}
{{- end }}

{{- define "embereye.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* Labels by which a Prometheus selects objects. */}}
{{- define "embereye.monitoringLabels" -}}
{{ include "embereye.labels" (merge (dict "more" .root.Values.monitoring.labels) .) }}
{{- end }}

{{/* The address of the runbooks, without the slash before an alert's name. */}}
{{- define "embereye.runbooks" -}}
{{- $named := list }}
{{- $path := printf "%s/runbooks" (.Values.hub.basePath | default "" | trimSuffix "/") }}
{{- range $host := .Values.hub.allowedHosts }}
{{- if not (contains "*" $host) }}
{{- $named = append $named (printf "https://%s%s" $host $path) }}
{{- end }}
{{- end }}
{{- coalesce .Values.monitoring.rules.runbookUrl (first $named) (printf "http://127.0.0.1:8080%s" $path) | trimSuffix "/" }}
{{- end }}

{{/* An expression that is true if operator or hub are not scraped. Their pods are selected by the label that separates hubs of
     one release, and releases of one namespace. Arguments: root, component */}}
{{- define "embereye.absent" -}}
{{- $up := printf "up{job=\"embereye-%s\",namespace=%q" .component .root.Release.Namespace }}
{{- if or .root.Values.hubs (eq .root.Values.monitoring.scrape "podMonitors") }}
{{- $instances := list .root.Release.Name }}
{{- if eq .component "hub" }}
{{- range $hub, $_ := .root.Values.hubs }}
{{- $instances = append $instances (printf "%s-%s" (include "embereye.name" $.root) $hub) }}
{{- end }}
{{- end }}
{{- range $at, $instance := $instances }}
{{- if $at }} or {{ end }}absent({{ $up }},app_kubernetes_io_instance={{ quote $instance }}})
{{- end }}
{{- else }}absent({{ $up }}})
{{- end }}
{{- end }}

{{/* An expression about operators and hubs of any release, restricted to this release. Arguments: root, expr */}}
{{- define "embereye.ours" -}}
{{- $expr := .expr }}
{{- range $component := list "operator" "hub" }}
{{- $all := printf "up{job=\"embereye-%s\"}" $component }}
{{- $missed := include "embereye.absent" (dict "root" $.root "component" $component) }}
{{- $ours := printf "up{job=\"embereye-%s\",namespace=%q}" $component $.root.Release.Namespace }}
{{- $expr = $expr | replace (printf "absent(%s)" $all) $missed | replace $all $ours }}
{{- end }}
{{- $expr }}
{{- end }}

{{/* The rules of this release. Their texts are Prometheus templates, which must not be executed here. */}}
{{- define "embereye.rules" -}}
{{- $rules := .Values.monitoring.rules }}
{{- $groups := list }}
{{- range $group := (.Files.Get "files/rules/prometheus.yaml" | fromYaml).groups }}
{{- $enabled := list }}
{{- range $rule := $group.rules }}
{{- if not (has $rule.alert $rules.disabled) }}
{{- $_ := set $rule "expr" (include "embereye.ours" (dict "root" $ "expr" $rule.expr)) }}
{{- if $rule.alert }}
{{- $_ := set $rule "labels" (merge $rule.labels ($rules.labels | default dict)) }}
{{- $_ := set $rule.annotations "runbook_url" (printf "%s/%s" (include "embereye.runbooks" $) $rule.alert) }}
{{- end }}
{{- $enabled = append $enabled $rule }}
{{- end }}
{{- end }}
{{- if $enabled }}
{{- $groups = append $groups (merge (dict "rules" $enabled) $group) }}
{{- end }}
{{- end }}
{{- toYaml (dict "groups" $groups) }}
{{- end }}

{{/* The same for Grafana, which identifies rules by a uid of at most 40 characters, and by folder and title. */}}
{{- define "embereye.grafanaRules" -}}
{{- $rules := .Values.monitoring.rules }}
{{- $release := printf "%s %s" .Release.Namespace .Release.Name }}
{{- $file := .Files.Get "files/rules/grafana.yaml" | fromYaml }}
{{- range $group := $file.groups }}
{{- $enabled := list }}
{{- range $rule := $group.rules }}
{{- if not (has $rule.title $rules.disabled) }}
{{- $_ := set $rule "labels" (merge $rule.labels ($rules.labels | default dict)) }}
{{- $_ := set $rule.annotations "runbook_url" (printf "%s/%s" (include "embereye.runbooks" $) $rule.title) }}
{{- $_ := set $rule "uid" (printf "%s-%s" (sha256sum $release | trunc 12) (trimPrefix "ember-eye-" $rule.uid)) }}
{{- $query := first $rule.data }}
{{- $_ := set $query "datasourceUid" $.Values.monitoring.grafanaAlerts.datasourceUid }}
{{- $_ := set $query.model "expr" (include "embereye.ours" (dict "root" $ "expr" $query.model.expr)) }}
{{- $enabled = append $enabled $rule }}
{{- end }}
{{- end }}
{{- $_ := set $group "rules" $enabled }}
{{- $_ := set $group "name" (printf "%s %s" $group.name $release) }}
{{- $_ := set $group "folder" (printf "%s %s" $group.folder $release) }}
{{- end }}
{{- toYaml $file }}
{{- end }}

{{/* For a Prometheus that scrapes by annotations. Arguments: root, port */}}
{{- define "embereye.scrapeAnnotations" -}}
{{- if and .root.Values.monitoring.enabled (eq .root.Values.monitoring.scrape "annotations") }}
annotations:
  prometheus.io/scrape: "true"
  prometheus.io/path: /metrics
  prometheus.io/port: {{ .port | quote }}
{{- end }}
{{- end }}

{{/* Arguments: root, extra */}}
{{- define "embereye.environment" -}}
{{- $environment := .extra | default list }}
{{- if ne .root.Values.logFormat "text" }}
{{- $environment = prepend $environment (dict "name" "EMBEREYE_LOG_FORMAT" "value" .root.Values.logFormat) }}
{{- end }}
{{- with .root.Values.tracing.endpoint }}
{{- $environment = append $environment (dict "name" "OTEL_EXPORTER_OTLP_ENDPOINT" "value" .) }}
{{- end }}
{{- with $environment }}
env: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The files that declare add-ons of the hub, by name, as JSON. */}}
{{- define "embereye.addons" -}}
{{- $files := dict }}
{{- range $addon := list "actuators" "modbus" "dc09" "archive" "notify" "profiles" "selftest" }}
{{- with (get $.Values.hub $addon | default dict).config }}
{{- $_ := set $files (printf "%s.yaml" $addon) (toYaml .) }}
{{- end }}
{{- end }}
{{- toJson $files }}
{{- end }}

{{/* The file for `embereye hub --webhooks`: hub.webhooks, with the files of their Secrets. */}}
{{- define "embereye.webhooks" -}}
{{- $declared := list }}
{{- range $webhook := .Values.hub.webhooks }}
{{- $entry := omit $webhook "urlFrom" "secretFrom" "tokenFrom" "caFrom" }}
{{- range $field := list "url" "secret" "token" "ca" }}
{{- if hasKey $webhook (printf "%sFrom" $field) }}
{{- $_ := set $entry (printf "%sFile" $field) (printf "/etc/embereye/webhooks/%s.%s" $webhook.name $field) }}
{{- end }}
{{- end }}
{{- $declared = append $declared $entry }}
{{- end }}
{{- dict "webhooks" $declared | toJson }}
{{- end }}
