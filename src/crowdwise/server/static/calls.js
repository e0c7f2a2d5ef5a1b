// Calls of the API with the session of the page.
export async function call(path, body, method) {
  const csrf = document.querySelector("meta[name=csrf]").content;
  const options = { method: method || (body === undefined ? "GET" : "POST"), headers: { "x-csrf-token": csrf } };
  if (body !== undefined) {
    options.headers["content-type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  const answer = await fetch(path, options);
  const found = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(found.detail || answer.statusText), { status: answer.status });
  return found;
}
