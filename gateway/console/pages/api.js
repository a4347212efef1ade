// What the broker is asked and told. An answer that is none says why in one line.

async function answered(response) {
  let body = {};
  try {
    body = await response.json();
  } catch {
    body = { error: `the broker answered ${response.status}` };
  }
  if (!response.ok) throw Object.assign(new Error(body.error ?? `the broker answered ${response.status}`), { status: response.status });
  return body;
}

export async function ask(path, fields = {}) {
  const query = new URLSearchParams(Object.entries(fields).filter(([, value]) => value !== undefined && value !== "")).toString();
  let response;
  try {
    response = await fetch(path + (query ? `?${query}` : ""), { headers: { Accept: "application/json" } });
  } catch {
    throw new Error("the broker does not answer");
  }
  return answered(response);
}

export async function send(path, what) {
  let response;
  try {
    response = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(what) });
  } catch {
    throw new Error("the broker does not answer: it may have been done");
  }
  return answered(response);
}

export const act = (what) => send("/v1/act", what);

export async function drop(path) {
  return answered(await fetch(path, { method: "DELETE" }));
}
